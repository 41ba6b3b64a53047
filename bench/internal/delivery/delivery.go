// Package delivery contains the parts that the programs of the workload of webhooks share: the senders and
// their receiver.
package delivery

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

// Event is the name of the event types, followed by a number.
const Event = "build.finished."

// A Build is the payload of an event.
type Build struct {
	Number  int    `json:"number"`
	Branch  string `json:"branch"`
	Commit  string `json:"commit"`
	Result  string `json:"result"`
	URL     string `json:"url"`
	Summary string `json:"summary"`
}

// NewBuild returns a payload of about 300 bytes.
func NewBuild(n int) Build {
	return Build{Number: n, Branch: "release/2026.12", Commit: "9f2c1a7be04d5c6688f1d0e3b7a94c2d5e6f7081",
		Result: "failed", URL: "https://ci.example/projects/gateway/builds/" + strconv.Itoa(n),
		Summary: "2 of 1841 tests failed: TestReloadKeepsSessions and TestShutdownWaitsForCalls in package host"}
}

// Secret signs all deliveries.
func Secret() webhook.Secret {
	s, err := webhook.ParseSecret("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	if err != nil {
		panic(err) // it is a constant
	}
	return s
}

// TLS trusts the certificate of the receiver, which is created at its start.
func TLS() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// burst is the number of deliveries that begin together, and period the time between two bursts: a thousand
// deliveries a second.
const (
	Burst  = 10
	period = 10 * time.Millisecond
)

// maxInFlight limits the deliveries that have begun and not ended: a receiver that falls behind must not be
// called over ever more connections, because it would spend its time on handshakes.
const maxInFlight = 5 * Burst

// Progress counts the deliveries of a sender. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex // guards the fields below
	ended   int
	failure error         // the first failure
	changed chan struct{} // closed and replaced when the fields change
}

// NewProgress returns a Progress without deliveries.
func NewProgress() *Progress { return &Progress{changed: make(chan struct{})} }

// End records the end of a delivery, from the results of an [http.RoundTripper].
func (p *Progress) End(resp *http.Response, err error) {
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	p.failure = cmp.Or(p.failure, err)
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits until n deliveries have ended.
func (p *Progress) wait(n int) error {
	for {
		p.mu.Lock()
		ended, failure, changed := p.ended, p.failure, p.changed
		p.mu.Unlock()
		if failure != nil || ended >= n {
			return failure
		}
		<-changed
	}
}

// Run begins a burst with send in every period of a slice, at least once, and waits for all deliveries.
func (p *Progress) Run(d time.Duration, send func() error) (load.Slice, error) {
	begin := time.Now()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	p.mu.Lock()
	begun := p.ended
	p.mu.Unlock()
	slice := load.Slice{}
	for range max(1, int(d/period)) {
		if err := p.wait(begun + Burst - maxInFlight); err != nil {
			return slice, err
		}
		if err := send(); err != nil {
			return slice, err
		}
		begun += Burst
		slice.Calls += Burst
		<-ticker.C
	}
	err := p.wait(begun)
	slice.Wall = time.Since(begin)
	return slice, err
}
