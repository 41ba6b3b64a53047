package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

const (
	// chainAge is the shortest time between two checks of the audit log. The time also is at least
	// chainPause times the duration of the last check: a large log takes minutes to read.
	chainAge   = 10 * time.Second
	chainPause = 20
	// chainWait is how long a request waits for the end of a check, so that it returns the result for a
	// small log.
	chainWait = 2 * time.Second
)

func chainRoute() *adminRoute {
	return getRoute("/audit/chain",
		"Whether a record of the audit log was altered, removed or cut; the check runs in the background",
		(*adminRequest).chain)
}

// A chainStatus is the state of the checks of the audit log.
type chainStatus struct {
	Running bool   `json:"running" jsonschema:"whether a check is running"`
	Read    int    `json:"read" jsonschema:"records that the running check has read"`
	OK      bool   `json:"ok" jsonschema:"whether the last check was completed, without a problem"`
	Error   string `json:"error,omitzero" jsonschema:"why the last check was not completed"`
	// Checked is zero before the end of the first check.
	Checked time.Time            `json:"checked,omitzero" jsonschema:"when the last check ended; absent before"`
	Millis  int64                `json:"ms" jsonschema:"how long the last check took"`
	Chains  []*audit.ChainReport `json:"chains" jsonschema:"of the last check; each process writes a chain"`
}

// A chainCheck checks the audit log in the background. It is safe for concurrent use.
type chainCheck struct {
	mu     sync.Mutex // guards the fields below
	status chainStatus
	next   time.Time     // when another check may begin
	done   chan struct{} // closed at the end of the running check
}

func (r *adminRequest) chain(*noQuery) (*chainStatus, error) {
	a := r.admin
	if a.opts.AuditDir == "" {
		return nil, noAuditLog()
	}
	ctx, cancel := context.WithTimeout(r.Context(), chainWait)
	defer cancel()
	select {
	case <-a.chain.begin(a):
	case <-ctx.Done():
	}
	return a.chain.get(), nil
}

func (c *chainCheck) get() *chainStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Chains = append([]*audit.ChainReport{}, s.Chains...)
	return &s
}

// begin begins a check unless a check is running or ended a short time ago. The channel is closed when no
// check is running.
func (c *chainCheck) begin(a *admin) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil || !c.status.Running && !time.Now().Before(c.next) {
		c.done = make(chan struct{})
		c.status.Running, c.status.Read = true, 0
		go c.run(a) // ends with a.ctx
	}
	return c.done
}

// run checks the log.
func (c *chainCheck) run(a *admin) {
	began := time.Now()
	o := a.opts.AuditVerify
	o.Progress = func(records int) error {
		c.mu.Lock()
		c.status.Read = records
		c.mu.Unlock()
		return a.ctx.Err()
	}
	report, err := audit.Verify(a.opts.AuditDir, &o)
	took := time.Since(began)
	now := chainStatus{Checked: time.Now().UTC(), Millis: took.Milliseconds()}
	if err != nil {
		now.Error = cut(err.Error(), maxProblem)
	} else {
		now.OK, now.Chains = report.Err() == nil, report.Chains
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = now
	c.next = time.Now().Add(max(chainAge, chainPause*took))
	close(c.done)
}
