package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// takeTask returns a task that its owner did not see the end of.
func (c *crowd) takeTask(revision string) (t ownedTask, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range c.tasks {
		if t.revision == revision {
			c.tasks = append(c.tasks[:i], c.tasks[i+1:]...)
			return t, true
		}
	}
	return t, false
}

// unfinishedTasks returns the number of tasks whose end was not seen.
func (c *crowd) unfinishedTasks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tasks)
}

// collect waits for tasks that others have left: no acknowledged task may be lost. Before that, it
// reads them as another principal, for whom they must not exist.
func (w *worker) collect(ctx context.Context) {
	t, ok := w.takeTask(w.revision)
	if !ok {
		w.steal(ctx)
		return
	}
	w.as(ctx, principals[w.random.IntN(len(principals))], func(ctx context.Context) {
		if w.principal != t.owner {
			w.readForeign(ctx, t)
		}
	})
	connected := false
	w.as(ctx, t.owner, func(ctx context.Context) {
		connected = true
		w.awaitTask(ctx, w.begin(opCollect, t.nonce, callTimeout), t)
	})
	if !connected {
		w.mu.Lock()
		w.tasks = append(w.tasks, t)
		w.mu.Unlock()
	}
}

// as connects as a principal and calls f, unless there is no connection.
func (w *worker) as(ctx context.Context, principal string, f func(ctx context.Context)) {
	w.disconnect()
	w.principal = principal
	if w.connect(ctx) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	f(ctx)
}

// readForeign reads a task of another principal.
func (w *worker) readForeign(ctx context.Context, t ownedTask) {
	a := w.begin("foreign task", "", callTimeout)
	_, err := tasks.Resume(w.client, t.id).Get(ctx)
	if kind, _ := classify(err); kind == answered {
		w.history.violate("crossed: a principal has read the task of another", w.principal+" read "+t.id+" of "+t.owner)
	}
	w.end(a, "", err)
}

// steal uses the id of another principal's session, which must not exist for this one.
func (w *worker) steal(ctx context.Context) {
	victim := principals[w.random.IntN(len(principals))]
	w.mu.Lock()
	id := w.sessions[victim]
	w.mu.Unlock()
	if id == "" || victim == w.principal {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	res := w.post(ctx, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.Header{
		"Authorization": {"Bearer " + tokenOf(w.principal)}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {revisions[1]},
	}, "foreign session", "")
	if res.status == http.StatusOK {
		w.history.violate("crossed: a principal has used the session of another", w.principal+" used that of "+victim)
	}
}

// listen subscribes for a while to numbered notifications: to the topic, which only modern clients
// can, and to the clock of the principal.
func (w *worker) listen(ctx context.Context) {
	if w.connect(ctx) == nil {
		return
	}
	filter := mcp.SubscriptionFilter{ResourceSubscriptions: []string{clockPrefix + w.principal}}
	if w.revision == revisions[0] {
		filter.Topics = map[string]json.RawMessage{tickTopic: json.RawMessage(`true`)}
	}
	name := w.nonce()
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond+time.Duration(w.random.Int64N(int64(2*time.Second))))
	defer cancel()
	for e, err := range w.client.Listen(ctx, filter) {
		if err != nil {
			if kind, _ := classify(err); kind == untyped {
				w.history.violate("lost: a subscription ended with an untyped error", err.Error())
			}
			w.disconnect()
			return
		}
		w.event(ctx, name, e)
	}
}

// event records a notification of a subscription.
func (w *worker) event(ctx context.Context, name string, e mcp.Event) {
	switch e.Kind {
	case mcp.EventTopic:
		var n tickNote
		if err := json.Unmarshal(e.Params, &n); err != nil || e.Method != tickMethod {
			w.history.violate("crossed: a notification cannot be read", e.Method+" "+string(e.Params))
			return
		}
		w.history.note(note{Stream: name, Kind: "tick", Owner: w.principal, For: n.For, N: n.N})
	case mcp.EventResourceUpdated:
		if owner := strings.TrimPrefix(e.URI, clockPrefix); owner != w.principal {
			w.history.violate("crossed: a resource update reached another principal", w.principal+" got "+e.URI)
		}
		w.readClock(ctx, name)
	}
}

func (w *worker) readClock(ctx context.Context, name string) {
	a := w.begin("read", "", callTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	res, err := w.client.ReadResource(ctx, clockPrefix+w.principal)
	w.end(a, "", err)
	if err != nil {
		return
	}
	n, err := parseClock(res.Contents[0].Text)
	if err != nil {
		w.history.violate("crossed: a resource cannot be read", res.Contents[0].Text)
		return
	}
	w.history.note(note{Stream: name, Kind: "clock", Owner: w.principal, For: n.For, N: n.N})
}
