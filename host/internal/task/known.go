package task

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// known is a task that a call created or that its caller asked about. The table's lock guards it.
type known struct {
	status.Task
	ref Ref
}

// note records a task that a call of the caller created, or the response of a server about a task.
func (c *Caller) note(t *Task, raw []byte, created bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.issued.Get(c.Principal)
	if own == nil {
		forget := func(_ Ref, k *known) { delete(c.byID, k.ID) }
		c.issued.Max, c.issued.OnEvict = maxIssuers, func(_ string, own *lru.Map[Ref, known]) { own.All(forget) }
		own = &lru.Map[Ref, known]{Max: maxIssuedTasks, OnEvict: forget}
		c.issued.Put(c.Principal, own)
	}
	k, text := own.Get(t.listKey()), func(key string) string { return shortened(jsonscan.GetString(raw, key)) }
	if k == nil || created {
		if k != nil {
			delete(c.byID, k.ID)
		}
		k = &known{status.Task{ID: rand.Text(), Handle: t.Handle, TaskID: t.ID, Server: t.Server, Tool: t.Tool,
			Owner: c.Owner, Created: time.Now()}, t.Ref}
		own.Put(t.listKey(), k)
		if c.byID == nil {
			c.byID = map[string]*known{}
		}
		c.byID[k.ID] = k
	}
	k.Status, k.Message, k.Checked = text("status"), text("statusMessage"), time.Now()
	k.HasResult = k.Status == taskCompleted || k.Status == taskFailed
	k.Updated, _ = time.Parse(time.RFC3339, text("lastUpdatedAt")) // zero without a valid time
	ttl, ok := jsonscan.Get(raw, "ttlMs")
	if !ok {
		ttl, _ = jsonscan.Get(raw, "ttl")
	}
	k.Expires = time.Time{}
	if left, err := time.ParseDuration(string(ttl) + "ms"); err == nil && left >= 0 { // a longer time is none
		k.Expires = k.Created.Add(left)
	}
	requests, _ := jsonscan.Get(raw, "inputRequests")
	k.Question = questionOf(requests)
}

// questionOf returns the first of the questions of a task in words, or "".
func questionOf(requests []byte) string {
	for _, request := range jsonscan.Members(requests) {
		params, _ := jsonscan.Get(request, "params")
		return shortened(cmp.Or(jsonscan.GetString(params, "message"), jsonscan.GetString(request, "method")))
	}
	return ""
}

// shortened returns the beginning of a text of a server, which the table may store for a long time.
func shortened(text string) string {
	const most = 500
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// isExpired reports whether the server may have deleted the task.
func (k *known) isExpired() bool { return !k.Expires.IsZero() && !time.Now().Before(k.Expires) }

// Tasks returns the tasks of all callers; see [operator.Tasks].
func (t *Table) Tasks() (all []status.Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.byID {
		if k.isExpired() {
			continue
		}
		if w := t.waits[k.Owner.Key()+"\n"+k.Handle]; w != nil && w.open != nil {
			k.Question = questionOf(w.open) // a server of 2025-11-25 asks the caller that waits for the result
		}
		all = append(all, k.Task)
	}
	slices.SortFunc(all, func(a, b status.Task) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Task sends a request about a task to its server; see [operator.Tasks]. It sends requests as a client of
// 2025-11-25, which receives questions only with the result.
func (t *Table) Task(ctx context.Context, id, method string) (now status.Task, _ json.RawMessage, err error) {
	t.mu.Lock()
	k := t.byID[id]
	isHeld := k != nil && !k.isExpired()
	if isHeld {
		now = k.Task
	}
	t.mu.Unlock()
	if !isHeld {
		return now, nil, operator.ErrNoTask
	}
	c := t.For(now.Owner)
	about, err := c.Open(now.Handle)
	if err != nil { // the caller may no longer use the server
		return now, nil, operator.ErrNoTask
	}
	if method == MethodGet && about.Kept == "" && !about.IsConnected() {
		return now, nil, nil
	}
	send := func(method string) (raw mcp.RawResult, err error) {
		req, err := mcp.NewRequest(&jsonrpc.Message{Method: method, Params: []byte(`{"_meta":{"` +
			wire.MetaProtocolVersion + `":"` + wire.VersionNovember2025 + `","` +
			wire.MetaClientCapabilities + `":{}}}`)})
		if err == nil {
			var res mcp.Result
			res, err = c.Serve(ctx, req, about)
			raw, _ = res.(mcp.RawResult)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		now = k.Task
		return raw, err
	}
	var raw mcp.RawResult
	_, err = send(MethodGet)
	fault, ok := errors.AsType[*mcp.Error](err)
	switch {
	case ok && fault.Code == mcp.CodeInvalidParams:
		err = operator.ErrNoTask
		t.mu.Lock()
		k.Status, k.HasResult = taskUnknown, false // the ref stays: lists of the server need the tool
		t.mu.Unlock()
	case err != nil:
	case method == MethodCancel && isFinal(now.Status):
		err = operator.ErrTaskEnded
	case method == MethodCancel:
		_, err = send(MethodCancel)
	case method == MethodResult && now.HasResult:
		raw, err = send(MethodResult)
		if fault, ok := errors.AsType[*mcp.Error](err); ok { // the error of the call that became the task
			raw, err = json.Marshal(fault)
		}
	}
	return now, json.RawMessage(raw), err
}
