package audit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// chainEvery is the age of a result at which the page asks for another check.
	chainEvery = 15 * time.Second
	// chainTimeout bounds a request for the state of a check, which waits for the check of a small
	// log.
	chainTimeout = 10 * time.Second
)

// A chainStatus is the response of GET /audit/chain: the last check of the log.
type chainStatus struct {
	Running bool      `json:"running"`
	Read    int       `json:"read"`
	OK      bool      `json:"ok"`
	Error   string    `json:"error"`
	Checked time.Time `json:"checked"`
	Chains  []struct {
		Chain   string `json:"chain"`
		Seq     uint64 `json:"seq"` // of the last valid record
		Signed  uint64 `json:"signed"`
		Records int    `json:"records"`
		Warning string `json:"warning"`
		Problem *struct {
			Kind string `json:"kind"`
			Seq  uint64 `json:"seq"`
			File string `json:"file"`
			Line int    `json:"line"`
			Text string `json:"text"`
		} `json:"problem"`
	} `json:"chains"`
}

// words returns the state of the check.
func (c *chainStatus) words() string {
	switch {
	case c.Checked.IsZero():
		return "checking"
	case c.OK:
		return "chain ok"
	case c.Error != "":
		return "not checked"
	}
	return "chain broken"
}

// Kind returns the class of the state, which selects its colour and symbol.
func (c *chainStatus) Kind() string {
	switch {
	case c.Checked.IsZero():
		return "busy"
	case c.OK:
		return "ok"
	}
	return "bad"
}

// Verified returns the number of records that are valid.
func (c *chainStatus) Verified() (n int) {
	for i := range c.Chains {
		n += c.Chains[i].Records
	}
	return n
}

// Unsigned returns the number of records after the last checkpoints, which somebody could remove
// unnoticed.
func (c *chainStatus) Unsigned() (n uint64) {
	for i := range c.Chains {
		if x := &c.Chains[i]; x.Seq > x.Signed {
			n += x.Seq - x.Signed
		}
	}
	return n
}

// A chain asks for the state of the log in the background, because a page must not wait for a
// check. It is safe for concurrent use.
type chain struct {
	site *page.Site

	mu     sync.Mutex // guards the fields below
	last   *chainStatus
	at     time.Time // when the last request began
	asking bool
	absent bool // the gateway does not check its log
}

// get returns the last state, or nil if the gateway does not check its log.
func (c *chain) get(r *page.Request) *chainStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.last == nil || c.last.Running || time.Since(c.at) > chainEvery
	if due && !c.asking && !c.absent {
		c.asking, c.at = true, time.Now()
		principal := r.Principal
		c.site.Background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, chainTimeout)
			defer cancel()
			s := &chainStatus{}
			err := c.site.Call(ctx, principal, http.MethodGet, "/audit/chain", nil, s)
			c.set(s, err)
		})
	}
	if c.absent {
		return nil
	}
	if c.last == nil {
		return &chainStatus{Running: true}
	}
	return c.last
}

func (c *chain) set(s *chainStatus, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = false
	var p *gateway.Problem
	switch {
	case errors.As(err, &p) && p.Code == "unknown_path":
		c.absent = true
	case err != nil:
		c.last = &chainStatus{Error: page.ErrorText(err), Checked: time.Now()}
	default:
		c.last = s
	}
	c.site.Changed()
}
