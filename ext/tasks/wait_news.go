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
	counts bool // the messages; not if the server may still tell numbers of its own

	mu     sync.Mutex // held while notify is called; guards the fields below
	notify func(ctx context.Context, method string, params stdjson.RawMessage) error
	token  stdjson.RawMessage
	told   string  // message
	number float64 // of the last note
}

// A progressNote is one of them.
type progressNote struct {
	Token    stdjson.RawMessage `json:"progressToken"`
	Progress float64            `json:"progress"`
	Message  string             `json:"message,omitzero"`
}

// newsOf returns the news of the call that req makes.
func newsOf(req *mcp.Request) *news {
	token, ok := req.Meta("progressToken")
	if !ok || req.Notify == nil {
		return nil
	}
	return &news{notify: req.Notify, token: token, counts: !formOf(req).is2025}
}

// renew goes on with the next round of the call, which has a token of its own.
func (n *news) renew(req *mcp.Request) {
	if next := newsOf(req); n != nil && next != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.notify, n.token = next.notify, next.token
	}
}

// through returns req with its notes passing through the news.
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
		n.number = note.Progress
		if note.Message != "" {
			n.told = note.Message
		}
	}
	return n.notify(ctx, method, params)
}

// message tells a status message. A note needs a number that is more than the last, and a message has none: it gets the next
// whole one, without a total, of which it would claim to be a part. Where the server can tell notes as long as the task is
// at work, as in 2025-11-25, its numbers are the only ones, and its notes have messages of their own.
func (n *news) message(ctx context.Context, text string) {
	if n == nil || !n.counts || text == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if text == n.told {
		return
	}
	n.told = text
	n.number = math.Floor(n.number) + 1
	raw, err := json.Marshal(progressNote{n.token, n.number, text})
	if err != nil {
		return // a number that JSON does not have
	}
	// A caller that takes no notes any more misses nothing else.
	_ = n.notify(ctx, notificationProgress, raw)
}
