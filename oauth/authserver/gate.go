package authserver

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

const (
	// fetchesAtOnce is how many fetches go on at a time, for all together: with the largest answers they take 64 MiB.
	fetchesAtOnce = 64
	// fetchesOfAsker is how many of those one address may cause. A login needs one; those whose hosts are slow to answer
	// must not hold up the others.
	fetchesOfAsker = 4
	// gateTime is how long to wait until there is room for one more.
	gateTime = time.Second
	// askerBits is the part of an IPv6 address that counts as one here. Whoever has one /64 may well have the /48.
	askerBits = 48
)

// errBusy is the error for what would have to be fetched, and cannot be for now: too much has been asked for.
var errBusy = errors.New("too much had to be fetched for the one who asks, or from the host")

// A gate bounds what we fetch because strangers say so: by who asks, whatever hosts he names, and by host, whoever asks.
type gate struct {
	limits *limits
	room   chan struct{} // holds a token for each fetch

	mu     sync.Mutex // guards the field below
	askers map[string]*askerRoom
}

// An askerRoom is the part of one who asks.
type askerRoom struct {
	room  chan struct{} // holds a token for each fetch
	users int           // those who are in it, or wait
}

func newGate(l *limits) *gate {
	return &gate{limits: l, room: make(chan struct{}, fetchesAtOnce), askers: map[string]*askerRoom{}}
}

// pays reports whether the rates allow a fetch. It is not for what was good before: its copies hold for a while, and
// nobody must use up what would keep it alive.
func (g *gate) pays(ctx context.Context, address string) bool {
	if _, ok := g.limits.allow(limitAskers, askerOf(ctx)); !ok {
		return false
	}
	_, ok := g.limits.allow(limitFetches, hostKey(address))
	return ok
}

// enter returns room for a fetch until leave, or errBusy. One who hurries does not wait for it.
func (g *gate) enter(ctx context.Context, hurries bool) (leave func(), err error) {
	asker, wait := askerOf(ctx), gateTime
	if hurries {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	own := g.join(asker)
	if err := takeRoom(ctx, own.room, timer); err != nil {
		g.part(asker, own)
		return nil, err
	}
	if err := takeRoom(ctx, g.room, timer); err != nil {
		<-own.room
		g.part(asker, own)
		return nil, err
	}
	return func() {
		<-g.room
		<-own.room
		g.part(asker, own)
	}, nil
}

func takeRoom(ctx context.Context, room chan struct{}, timer *time.Timer) error {
	select {
	case room <- struct{}{}:
		return nil
	default:
	}
	select {
	case room <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) join(asker string) *askerRoom {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.askers[asker]
	if own == nil {
		own = &askerRoom{room: make(chan struct{}, fetchesOfAsker)}
		g.askers[asker] = own
	}
	own.users++
	return own
}

func (g *gate) part(asker string, own *askerRoom) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(g.askers, asker)
	}
}

type askerKey struct{}

// withAsker notes the address that a request comes from, as limits.address gives it.
func withAsker(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, askerKey{}, address)
}

// askerOf returns the address that a request comes from, with all that may be in the same hands.
func askerOf(ctx context.Context) string {
	address, _ := ctx.Value(askerKey{}).(string)
	if site, err := netip.ParsePrefix(address); err == nil && site.Bits() > askerBits {
		site, _ = site.Addr().Prefix(askerBits)
		return site.String()
	}
	return address
}
