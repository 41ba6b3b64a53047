package tasks

import (
	"context"
	stdjson "encoding/json"
	"math"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const notificationProgress = "notifications/progress"

// news are the notes of progress of a call that wants them: those that the server sends, and the status messages of the
// task in between. A nil news is one of a call that wants none.
type news struct {
	notify func(ctx context.Context, method string, params stdjson.RawMessage) error
	token  stdjson.RawMessage
	counts bool // the messages, where the server tells no numbers; not if it still may

	mu    sync.Mutex    // held while notify is called; guards the fields below
	told  string        // message
	count float64       // of messages
	own   *progressNote // the last note of the server; nil for none
}

// A progressNote is one of them.
type progressNote struct {
	Token    stdjson.RawMessage `json:"progressToken"`
	Progress float64            `json:"progress"`
	Total    stdjson.RawMessage `json:"total,omitzero"`
	Message  string             `json:"message,omitzero"`
}

// newsOf gives the news of the call that req makes.
func newsOf(req *mcp.Request) *news {
	token, ok := req.Meta("progressToken")
	if !ok || req.Notify == nil {
		return nil
	}
	return &news{notify: req.Notify, token: token, counts: !formOf(req).is2025}
}

// through gives req with its notes passing through the news.
func (n *news) through(req *mcp.Request) *mcp.Request {
	if n == nil {
		return req
	}
	watched := *req
	watched.Notify = n.pass
	return &watched
}

// pass hands on a note of the server.
func (n *news) pass(ctx context.Context, method string, params stdjson.RawMessage) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var note progressNote
	if method == notificationProgress && json.Unmarshal(params, &note) == nil {
		n.own = &note
	}
	return n.notify(ctx, method, params)
}

// message tells a status message. It needs a number that is more than the last: where the server counts, it is the next
// that a number can be, so as to say no more than the server; else it is the count of messages.
func (n *news) message(ctx context.Context, text string) {
	if n == nil || text == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if text == n.told || n.own == nil && !n.counts {
		return
	}
	n.told = text
	note := progressNote{Token: n.token, Message: text}
	if n.own != nil {
		n.own.Progress = math.Nextafter(n.own.Progress, math.Inf(1))
		note.Progress, note.Total = n.own.Progress, n.own.Total
	} else {
		n.count++
		note.Progress = n.count
	}
	raw, err := json.Marshal(note)
	if err != nil {
		return // a number that JSON does not have
	}
	// A caller that takes no notes any more misses nothing else.
	_ = n.notify(ctx, notificationProgress, raw)
}
