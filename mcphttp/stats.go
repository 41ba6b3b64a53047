package mcphttp

import (
	"maps"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Stats are the figures of a [Handler] at a moment.
type Stats struct {
	Sessions      int `json:"sessions" jsonschema:"open sessions"`
	Streams       int `json:"streams" jsonschema:"streams of sessions in progress"` // their GET requests
	Subscriptions int `json:"subscriptions" jsonschema:"subscriptions in progress"` // of 2026-07-28
	InFlight      int `json:"inFlight" jsonschema:"other requests in progress"`
	// Refused is the number of HTTP requests since the start that had a status of 400 or more, by
	// reason: the limit that was reached, such as "too many sessions", or else the name of the
	// status.
	Refused map[string]int64 `json:"refused" jsonschema:"requests with a status of 400 or more, by reason"`
}

// Stats returns the figures of the handler, for metrics. It is safe for concurrent use, and fast.
func (h *Handler) Stats() Stats {
	return Stats{
		Sessions: h.sessions.quota.count(), Streams: int(h.streams.n.Load()),
		Subscriptions: h.listens.count(), InFlight: h.inFlight.count(), Refused: h.refused.all(),
	}
}

func (q *quota) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.taken)
}

// A refusalCounter counts refusals by reason. The reasons are a bounded set: no text of a client is
// one of these texts, and no text of a handler.
type refusalCounter struct {
	mu       sync.Mutex // guards the field below
	byReason map[string]int64
}

// reason returns the reason of a refusal for [Stats].
func (no *refusal) reason() string {
	if no.err.Code == mcp.CodeBusy {
		return no.err.Message
	}
	return http.StatusText(no.status)
}

func (c *refusalCounter) add(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byReason == nil {
		c.byReason = map[string]int64{}
	}
	c.byReason[reason]++
}

func (c *refusalCounter) all() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byReason)
}
