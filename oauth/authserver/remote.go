package authserver

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxCopies is how many copies are kept in memory: each has some kilobytes at most. As many failures are.
	maxCopies = 1000
	// minCopyTime is how long a copy is good even if its host says that it must not be kept: the steps of a login see one
	// document, and strangers cannot make us ask a host again and again.
	minCopyTime = time.Minute
	// maxCopyTime is how long a copy is good at most.
	maxCopyTime = 24 * time.Hour
	// fetchTime bounds one fetch. It goes on when whoever caused it is gone, since others wait for it.
	fetchTime = 10 * time.Second
)

// A remote keeps copies of what clients have at addresses that they name: anybody can name any address, as often as he
// likes. So what a stranger does is counted against himself, and takes nothing from what is known to be good: failures
// have a room of their own, and so has each who asks, at the gate.
type remote[T any] struct {
	gate *gate
	// fetch returns a value, and how long it may be kept.
	fetch func(ctx context.Context, address string) (value T, life time.Duration, err error)
	// load returns what outlives the memory, nil if there is nothing. It may be nil itself.
	load func(ctx context.Context, address string) (*localCopy[T], error)
	// retry is how long a failure holds, and standIn for how long a copy does when its host does not answer.
	retry, standIn time.Duration

	mu      sync.Mutex // guards the fields below
	good    lru[localCopy[T]]
	bad     lru[failure]
	flights map[string]*flight[T]
}

// A localCopy is a value as it was fetched once. If it is too old it still tells that there was one.
type localCopy[T any] struct {
	value   T
	fetched time.Time
	fresh   time.Time // until when nobody is asked
}

type failure struct {
	err   error
	fresh time.Time
}

// A flight is a fetch that goes on.
type flight[T any] struct {
	done  chan struct{} // closed when the rest is there
	value T
	life  time.Duration
	err   error
}

// get returns the value at an address: errBusy if it cannot be fetched for now, and nothing stands in.
func (r *remote[T]) get(ctx context.Context, address string) (T, error) {
	held, under, err := r.look(ctx, address)
	now := time.Now()
	standsIn := held != nil && held.isWithin(r.standIn, now)
	switch {
	case err != nil:
		return *new(T), err
	case held != nil && now.Before(held.fresh), standsIn && under != nil: // the one who fetches sees to it
		return held.value, nil
	case under != nil:
		return under.wait(ctx)
	}
	value, err := r.enter(ctx, address, standsIn)
	if standsIn && errors.Is(err, errBusy) {
		return held.value, nil
	}
	return value, err
}

func (r *remote[T]) enter(ctx context.Context, address string, hurries bool) (T, error) {
	leave, err := r.gate.enter(ctx, hurries)
	if err == nil {
		defer leave()
		return r.fly(ctx, address)
	}
	if _, under, _ := r.lookHere(address); under != nil { // somebody else has got in
		return under.wait(ctx)
	}
	return *new(T), err
}

// look returns the copy of an address and the fetch of it, nil if there is none, or the failure that holds.
func (r *remote[T]) look(ctx context.Context, address string) (*localCopy[T], *flight[T], error) {
	held, under, err := r.lookHere(address)
	if err != nil || held != nil || r.load == nil {
		return held, under, err
	}
	loaded, err := r.load(ctx, address)
	if err != nil || loaded == nil {
		return nil, under, err
	}
	r.mu.Lock()
	// What has been found out meanwhile is newer.
	if r.good.get(address) == nil && r.bad.get(address) == nil && r.flights[address] == nil {
		r.good.put(address, loaded)
	}
	r.mu.Unlock()
	return r.lookHere(address)
}

func (r *remote[T]) lookHere(address string) (*localCopy[T], *flight[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.bad.get(address); f != nil && time.Now().Before(f.fresh) {
		return nil, nil, f.err
	}
	return r.good.get(address), r.flights[address], nil
}

// fly fetches, or takes what another one fetches or has fetched.
func (r *remote[T]) fly(ctx context.Context, address string) (T, error) {
	f, isOurs, err := r.takeOff(ctx, address)
	switch {
	case err != nil:
		return *new(T), err
	case !isOurs:
		return f.wait(ctx)
	}
	defer r.land(address, f)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
	defer cancel()
	began := time.Now()
	f.value, f.life, f.err = r.fetch(ctx, address)
	r.settle(address, f, began)
	return f.value, f.err
}

// takeOff returns the fetch of an address, which is ours to do if nobody does it or has done it meanwhile.
func (r *remote[T]) takeOff(ctx context.Context, address string) (f *flight[T], isOurs bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if under := r.flights[address]; under != nil {
		return under, false, nil
	}
	f = &flight[T]{done: make(chan struct{}), err: errors.New("the fetch broke off")}
	now, held, bad := time.Now(), r.good.get(address), r.bad.get(address)
	switch {
	case bad != nil && now.Before(bad.fresh):
		return nil, false, bad.err
	case held != nil && now.Before(held.fresh):
		f.value, f.err = held.value, nil
		close(f.done)
		return f, false, nil
	case held == nil && !r.gate.pays(ctx, address):
		return nil, false, errBusy
	}
	if r.flights == nil {
		r.flights = map[string]*flight[T]{}
	}
	r.flights[address] = f
	return f, true, nil
}

// settle notes what came of a fetch, and makes of it what the callers get: an old copy stands in for a failure, unless
// the host has said that it is over.
func (r *remote[T]) settle(address string, f *flight[T], began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, now := r.good.get(address), time.Now()
	switch {
	case f.err == nil:
		r.bad.drop(address)
		r.good.put(address, &localCopy[T]{value: f.value, fetched: began, fresh: began.Add(copyTime(f.life))})
	case held != nil && held.isWithin(r.standIn, now) && !isGone(f.err):
		r.good.put(address, &localCopy[T]{value: held.value, fetched: held.fetched, fresh: now.Add(r.retry)})
		f.value, f.err = held.value, nil
	default:
		if isGone(f.err) {
			r.good.drop(address)
		}
		r.bad.put(address, &failure{f.err, now.Add(r.retry)})
	}
}

// land ends a flight, also one that panicked.
func (r *remote[T]) land(address string, f *flight[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, address)
	close(f.done)
}

// peek returns the copy of an address that is in memory, nil if there is none.
func (r *remote[T]) peek(address string) *localCopy[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.good.get(address)
}

func (f *flight[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

// copyTime returns how long a copy is good that may be kept for life.
func copyTime(life time.Duration) time.Duration { return min(max(life, minCopyTime), maxCopyTime) }

// isWithin reports whether a copy is no older than a time. One of the future is one of a clock that was set back.
func (c *localCopy[T]) isWithin(most time.Duration, now time.Time) bool {
	age := now.Sub(c.fetched)
	return age >= 0 && age < most
}

// isGone reports whether a host has said that what it had is no more.
func isGone(err error) bool {
	var unfetched *oauth.FetchError
	var invalid *oauth.DiscoveryError
	switch {
	case errors.As(err, &invalid):
		return true
	case errors.As(err, &unfetched):
		busy := unfetched.Status == http.StatusRequestTimeout || unfetched.Status == http.StatusTooManyRequests
		return unfetched.Status != 0 && unfetched.Status < http.StatusInternalServerError && !busy
	}
	return false
}

// hostKey returns the host of an address as rates are counted by it.
func hostKey(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

// An lru keeps the values that were used last, maxCopies of them. What it holds is not changed.
type lru[V any] struct {
	byKey  map[string]*list.Element
	recent list.List // of *lruEntry[V], the most recent first
}

type lruEntry[V any] struct {
	key   string
	value *V
}

// get returns a value, nil if there is none.
func (l *lru[V]) get(key string) *V {
	e, ok := l.byKey[key]
	if !ok {
		return nil
	}
	l.recent.MoveToFront(e)
	return e.Value.(*lruEntry[V]).value
}

func (l *lru[V]) put(key string, value *V) {
	l.drop(key)
	if l.byKey == nil {
		l.byKey = map[string]*list.Element{}
	}
	if len(l.byKey) >= maxCopies {
		l.drop(l.recent.Back().Value.(*lruEntry[V]).key)
	}
	l.byKey[key] = l.recent.PushFront(&lruEntry[V]{key, value})
}

func (l *lru[V]) drop(key string) {
	if e, ok := l.byKey[key]; ok {
		l.recent.Remove(e)
		delete(l.byKey, key)
	}
}
