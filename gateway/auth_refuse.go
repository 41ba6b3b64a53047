package gateway

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxFailures limits the requests with wrong credentials per address and interval. They get the
	// status 401, and requests over the limit 429. A client with an old key sends a few.
	maxFailures     = 30
	failureInterval = time.Minute
	// maxFailing limits the addresses that are counted in an interval. All further addresses share
	// a counter.
	maxFailing = 10_000
	// maxAccepted limits the principals whose last record is remembered.
	maxAccepted = 10_000
)

// Acceptances remember when the use of tokens and certificates was recorded. They are safe for
// concurrent use.
type acceptances struct {
	mu   sync.Mutex // guards the field below
	last map[string]time.Time
}

// isDue reports whether the use of the credentials of a principal is recorded now.
func (a *acceptances) isDue(p *mcp.Principal) bool {
	now, key := time.Now(), p.Key()
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, known := a.last[key]; known && now.Sub(last) < usedInterval {
		return false
	}
	if a.last == nil || len(a.last) >= maxAccepted {
		a.last = map[string]time.Time{}
	}
	a.last[key] = now
	return true
}

// A failureCounter counts the refused requests of addresses. It is safe for concurrent use.
type failureCounter struct {
	mu     sync.Mutex // guards the fields below
	begun  time.Time
	counts map[netip.Addr]int
}

// isLimited counts a rejected request, and reports whether its address exceeded the limit, with the
// time until the next interval.
func (f *failureCounter) isLimited(remote string) (wait time.Duration, limited bool) {
	at, _ := netip.ParseAddrPort(remote)
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		const network = 64 // bits that one client can control
		prefix, _ := addr.Prefix(network)
		addr = prefix.Addr()
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil || now.Sub(f.begun) >= failureInterval {
		f.begun, f.counts = now, map[netip.Addr]int{}
	}
	if _, known := f.counts[addr]; !known && len(f.counts) >= maxFailing {
		addr = netip.Addr{}
	}
	f.counts[addr]++
	return failureInterval - now.Sub(f.begun), f.counts[addr] > maxFailures
}

// refuse rejects a request without valid credentials. k is a key that has ended, or nil. The
// response does not depend on the reason. A valid key is never rejected because of other clients:
// behind a proxy all clients share one address, and a key cannot be guessed.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, why error, k *liveKey) {
	g.logRefusal(r, why, k)
	limitBodyTime(w)
	if wait, limited := g.failures.isLimited(r.RemoteAddr); limited {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		g.refuseHTTP(w, http.StatusTooManyRequests, "too many requests without valid credentials")
		return
	}
	w.Header().Set("WWW-Authenticate", g.challenge(r))
	g.refuseHTTP(w, http.StatusUnauthorized, "unauthorized")
}

// logRefusal logs and records a rejected request, unless there are too many.
func (g *Gateway) logRefusal(r *http.Request, why error, k *liveKey) {
	if !g.refusals.Admit() {
		return
	}
	name := ""
	if k != nil {
		name = k.Name
	}
	g.opts.Logger.WarnContext(r.Context(), "gateway: request refused", "reason", why.Error(), "key", name,
		"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	g.recordRefusal(r, why, k)
}

// challenge returns how a client can authenticate.
func (g *Gateway) challenge(r *http.Request) string {
	if g.tokens == nil {
		return "Bearer"
	}
	return g.tokens.challenge(r)
}

// A loginDetail is the detail of a record of credentials.
type loginDetail struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitzero"`
	Key     string `json:"key,omitzero"`
	Remote  string `json:"remote,omitzero"`
	Path    string `json:"path,omitzero"`
}

// Outcomes of records of credentials.
const (
	outcomeRefused  = "refused"  // a request without valid credentials
	outcomeAccepted = "accepted" // at most once a minute for each
	outcomeEnded    = "ended"    // they are no longer valid
)

// recordRefusal records a rejected request that was logged: a client must not be able to fill the
// log.
func (g *Gateway) recordRefusal(r *http.Request, why error, k *liveKey) {
	d := loginDetail{Outcome: outcomeRefused, Reason: why.Error(), Remote: remoteIP(r), Path: cutText(r.URL.Path)}
	var p *mcp.Principal
	if k != nil {
		d.Key, p = k.Name, k.principal()
	}
	g.recordLogin(p, d)
}

// recordKey records the use or the end of a key.
func (g *Gateway) recordKey(outcome string, k *Key, why error) {
	d := loginDetail{Outcome: outcome, Key: k.Name}
	if why != nil {
		d.Reason = why.Error()
	}
	g.recordLogin(k.principal(), d)
}

func (g *Gateway) recordLogin(p *mcp.Principal, d loginDetail) {
	text, err := json.Marshal(d)
	if err != nil {
		return // of strings only
	}
	r := &event.Record{Event: event.Login, Detail: text}
	if p != nil {
		r.Caller = &policy.Caller{Principal: p}
	}
	_ = g.host.Operator().Record(r) // the Recorder reports its failure
}

func remoteIP(r *http.Request) string {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}

// cutText returns the beginning of a text that clients choose.
func cutText(text string) string {
	const most = 256
	return text[:min(len(text), most)]
}
