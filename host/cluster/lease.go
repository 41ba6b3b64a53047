package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

const (
	// leaseTime is the time of a lease in the store. A process that was killed keeps its servers for that time.
	leaseTime = 30 * time.Second
	// serveTime is how long a host uses a lease after the last renewal. The rest of the lease is longer than the
	// 11 seconds that the end of a process may take.
	serveTime = 18 * time.Second
	// renewInterval is the time between two renewals, so that a restart or failover of the store costs no server.
	renewInterval = 3 * time.Second
	// storeTimeout limits an operation of the store.
	storeTimeout = 2 * time.Second
	// lastTime is the time for an attempt to renew a lease that is almost over, and between two attempts.
	lastTime = 250 * time.Millisecond
)

// A Lease is the right of a host to run a server. It is safe for concurrent use.
type Lease struct {
	// Token distinguishes the lease from all others of the server.
	Token   uint64
	node    *Node
	name    string
	value   string // in the store
	renewed atomic.Pointer[renewal]
	wake    chan struct{} // buffered (1): makes Keep renew the lease now
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // of the renewals
}

// A renewal is the time before the request for a lease, by both clocks. The monotonic clock may stand still while the
// machine sleeps, and the other clock may be set.
type renewal struct{ monotonic, wall time.Time }

func newRenewal() *renewal {
	now := time.Now()
	return &renewal{now, now.Round(0)}
}

// Take takes the lease of a server, or returns the host that holds it. The claim is a random text, which must be the
// same when Take is repeated after an error, and new after the end of a lease. The caller of a lease must call
// [Lease.Keep] in a goroutine, and [Lease.Release]. Take takes at most 2 seconds, also if ctx ends earlier: a request
// that is not awaited could leave a lease.
func (n *Node) Take(ctx context.Context, server, claim string) (*Lease, *Peer, error) {
	began, name, value := newRenewal(), leaseName(server), claim+" "+n.address
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	h, err := n.leases.Grant(bounded, name, value, leaseTime)
	if err != nil {
		return nil, nil, fmt.Errorf("take the lease of the server: %w", err)
	}
	if h.Value != value {
		_, address, _ := strings.Cut(h.Value, " ")
		return nil, &Peer{Token: h.Token, Left: h.Left, address: address, node: n}, nil
	}
	l := &Lease{Token: h.Token, node: n, name: name, value: value, wake: make(chan struct{}, 1)}
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.renewed.Store(began)
	return l, nil, nil
}

// IsValid reports whether the server may serve requests: no other host can run it yet. After a pause of the process
// it returns false until the lease is renewed, which it makes Keep try at once.
func (l *Lease) IsValid() bool {
	if l.ctx.Err() != nil {
		return false
	}
	if l.age() < serveTime {
		return true
	}
	peer.Wake(l.wake)
	return false
}

// age returns the time since the last renewal, by the clock that says more.
func (l *Lease) age() time.Duration {
	renewed, now := l.renewed.Load(), time.Now()
	return max(now.Sub(renewed.monotonic), now.Round(0).Sub(renewed.wall))
}

// grantTimeout limits a renewal to the time for which the host may use the lease. After that time, the server serves no
// requests, and a last renewal may still save it.
func (l *Lease) grantTimeout() time.Duration {
	return max(lastTime, min(storeTimeout, serveTime-l.age()))
}

// Keep renews the lease until ctx ends or [Lease.Release] is called, and then returns nil. It returns [ErrLost] if
// another host may hold the lease; then the caller must end the server within 12 seconds. While the store fails,
// the lease remains valid for the rest of its time.
func (l *Lease) Keep(ctx context.Context) error {
	for {
		timer := time.NewTimer(max(lastTime, min(renewInterval, serveTime-storeTimeout-l.age())))
		select {
		case <-timer.C:
		case <-l.wake:
			timer.Stop()
		case <-l.ctx.Done():
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		began := newRenewal()
		bounded, cancel := context.WithTimeout(l.ctx, l.grantTimeout())
		h, err := l.node.leases.Grant(bounded, l.name, l.value, leaseTime)
		cancel()
		switch {
		case l.ctx.Err() != nil || ctx.Err() != nil:
			return nil
		case err == nil && h.Token == l.Token:
			l.renewed.Store(began)
		case err == nil, l.age() >= serveTime:
			l.stop()
			if h.Value == l.value { // a new lease, whose server does not run
				_ = l.end(h.Token) // which logs the error
			}
			return ErrLost
		default:
			l.node.log.Warn("cluster: the lease could not be renewed", "server", l.name, "error", err)
		}
	}
}

// Release ends the lease, so that another host may run the server. The server must have ended. It takes at most 2
// seconds. If the store fails, Release returns its error, and the lease ends by itself unless [Node.Take] with the same
// claim regains it.
func (l *Lease) Release() error {
	l.stop()
	return l.end(l.Token)
}

func (l *Lease) end(token uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err := l.node.leases.End(ctx, l.name, token)
	if err != nil {
		l.node.log.Warn("cluster: the lease could not be ended, and ends later", "server", l.name, "error", err)
	}
	return err
}
