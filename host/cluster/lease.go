package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
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
)

// A Lease is the right of a host to run a server. It is safe for concurrent use.
type Lease struct {
	// Token distinguishes the lease from all others of the server.
	Token   uint64
	node    *Node
	name    string
	value   string                    // in the store
	renewed atomic.Pointer[time.Time] // before the request for the last renewal
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // of the renewals
}

// Take takes the lease of a server, or returns the host that holds it. The claim is a random text, which must be the
// same when Take is repeated after an error, and new after the end of a lease. The caller of a lease must call
// [Lease.Keep] in a goroutine, and [Lease.Release].
func (n *Node) Take(ctx context.Context, server, claim string) (*Lease, *Peer, error) {
	began, name, value := time.Now(), leaseName(server), claim+" "+n.address
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	h, err := n.leases.Grant(bounded, name, value, leaseTime)
	if err != nil {
		return nil, nil, fmt.Errorf("take the lease of the server: %w", err)
	}
	if h.Value != value {
		_, address, _ := strings.Cut(h.Value, " ")
		return nil, &Peer{Token: h.Token, Left: h.Left, address: address, node: n}, nil
	}
	l := &Lease{Token: h.Token, node: n, name: name, value: value}
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.renewed.Store(&began)
	return l, nil, nil
}

// IsValid reports whether the server may serve requests: no other host can run it yet. After a pause of the process
// it returns false until the lease is renewed.
func (l *Lease) IsValid() bool { return l.ctx.Err() == nil && l.age() < serveTime }

// age returns the time since the last renewal. The monotonic clock may stand still while the machine sleeps, and
// the other clock may be set.
func (l *Lease) age() time.Duration {
	renewed, now := *l.renewed.Load(), time.Now()
	return max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0)))
}

// Keep renews the lease until ctx ends or [Lease.Release] is called, and then returns nil. It returns [ErrLost] if
// another host may hold the lease; then the caller must end the server within 12 seconds. While the store fails,
// the lease remains valid for the rest of its time.
func (l *Lease) Keep(ctx context.Context) error {
	for {
		timer := time.NewTimer(max(0, min(renewInterval, serveTime-l.age())))
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(l.ctx, storeTimeout)
		h, err := l.node.leases.Grant(bounded, l.name, l.value, leaseTime)
		cancel()
		switch {
		case l.ctx.Err() != nil || ctx.Err() != nil:
			return nil
		case err == nil && h.Token == l.Token:
			l.renewed.Store(&began)
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
