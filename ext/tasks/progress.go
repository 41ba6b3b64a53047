package tasks

import (
	"context"
	"encoding/json"
	"math"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const notificationProgress = "notifications/progress"

// A progressSender sends the progress notifications of a call that wants them: the notifications of
// the server, and the status messages of its task. A nil progressSender sends no notification.
type progressSender struct {
	sendsMessages bool // false if the server may send progress itself while the task works

	mu      sync.Mutex // held during calls of notify; guards the fields below
	notify  func(ctx context.Context, method string, params json.RawMessage) error
	token   json.RawMessage
	message string  // of the last notification with a message
	number  float64 // of the last notification
}

type progressParams struct {
	Token    json.RawMessage `json:"progressToken"`
	Progress float64         `json:"progress"`
	Message  string          `json:"message,omitzero"`
}

// newProgressSender returns nil if the call does not want progress.
func newProgressSender(req *mcp.Request) *progressSender {
	token, ok := req.Meta("progressToken")
	if !ok || req.Notify == nil {
		return nil
	}
	return &progressSender{
		notify: req.Notify, token: token, sendsMessages: clientFormOf(req.Revision()).hasNotifications(),
	}
}

// setRequest continues with the request of the call's next round, which uses its own token.
func (p *progressSender) setRequest(req *mcp.Request) {
	if next := newProgressSender(req); p != nil && next != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notify, p.token = next.notify, next.token
	}
}

func (p *progressSender) wrap(req *mcp.Request) *mcp.Request {
	if p == nil {
		return req
	}
	wrapped := *req
	wrapped.Notify = p.forward
	return &wrapped
}

func (p *progressSender) forward(ctx context.Context, method string, params json.RawMessage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var progress progressParams
	if method == notificationProgress && jsonv2.Unmarshal(params, &progress) == nil {
		p.number = progress.Progress
		if progress.Message != "" {
			p.message = progress.Message
		}
	}
	return p.notify(ctx, method, params)
}

// sendMessage sends a status message as progress. Progress must increase with each notification,
// and a message contains no number: it gets the next integer, and no total.
func (p *progressSender) sendMessage(ctx context.Context, text string) {
	if p == nil || !p.sendsMessages || text == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.message {
		return
	}
	p.message = text
	p.number = math.Floor(p.number) + 1
	raw, err := jsonv2.Marshal(progressParams{p.token, p.number, text})
	if err != nil {
		return // JSON cannot hold the number
	}
	_ = p.notify(ctx, notificationProgress, raw) // an error of the caller's function does not affect the call
}
