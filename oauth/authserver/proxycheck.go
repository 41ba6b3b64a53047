package authserver

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
)

// proxyRequests is the number of forwarded requests from an address after which the address is
// taken for a reverse proxy.
const proxyRequests = 20

// A proxyCheck logs a warning if all requests come from an address that forwards requests of
// several clients, and LimitOptions.TrustedProxies does not list it. All users then share a rate.
type proxyCheck struct {
	mu        sync.Mutex // guards the fields below
	isDone    bool
	peer      netip.Addr
	forwarded string // of the first request
	differ    bool   // whether requests were forwarded for more than one client
	requests  int
}

func (p *proxyCheck) check(r *http.Request, l *limits, log *slog.Logger) {
	forwarded := r.Header.Get("X-Forwarded-For") + r.Header.Get("Forwarded")
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if forwarded == "" || err != nil {
		return
	}
	peer := addr.Addr().Unmap().WithZone("")
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.isDone:
		return
	case p.requests == 0:
		p.peer, p.forwarded = peer, forwarded
	case p.peer != peer:
		p.isDone = true
		return
	}
	p.requests++
	p.differ = p.differ || forwarded != p.forwarded
	if p.requests < proxyRequests || !p.differ {
		return
	}
	p.isDone = true
	if !l.trusts(peer) {
		log.Warn("authorization server: all requests come from one address, probably a reverse proxy, so all users "+
			"share one rate: it must be listed as a trusted proxy", "address", peer)
	}
}
