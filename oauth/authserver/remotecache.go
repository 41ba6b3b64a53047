package authserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxCached is the maximum number of values in memory, and of failures. Each takes a few
	// kilobytes.
	maxCached = 1000
	// minFresh is how long a value is used even if its host says no-store: the steps of a login see
	// one document, and clients cannot make the server send a request for each of theirs.
	minFresh = time.Minute
	maxFresh = 24 * time.Hour // maximum time for which a value is used before it is fetched again
	// fetchTimeout is the time limit of a fetch. A fetch continues if the request that started it
	// is canceled, because other requests may wait for it.
	fetchTimeout = 10 * time.Second
)

// A remoteCache keeps values that are fetched from URLs that clients choose. Anyone can name any
// URL, so failures are kept apart from values and cannot displace them, and the fetchLimiter limits
// each client.
type remoteCache[T any] struct {
	limiter *fetchLimiter
	// fetch returns a value and how long it is fresh.
	fetch func(ctx context.Context, address string) (value T, fresh time.Duration, err error)
	// load returns a value from persistent storage, or nil. It may be nil.
	load func(ctx context.Context, address string) (*cached[T], error)
	// failureTime is how long a failure is kept. staleTime is the age up to which a value is used
	// while its host fails.
	failureTime, staleTime time.Duration

	mu       sync.Mutex // guards the fields below
	values   lru.Map[string, cached[T]]
	failures lru.Map[string, failure]
	calls    map[string]*fetchCall[T] // the fetches in progress
}

func newRemoteCache[T any](l *fetchLimiter, failureTime, staleTime time.Duration) remoteCache[T] {
	return remoteCache[T]{
		limiter: l, failureTime: failureTime, staleTime: staleTime,
		values: lru.Map[string, cached[T]]{Max: maxCached}, failures: lru.Map[string, failure]{Max: maxCached},
		calls: map[string]*fetchCall[T]{},
	}
}

// A cached value is immutable. A value that is too old to be used still records that its URL was
// valid once.
type cached[T any] struct {
	value      T
	fetched    time.Time
	freshUntil time.Time
}

type failure struct {
	err   error
	until time.Time
}

// A fetchCall is a fetch that several requests may wait for.
type fetchCall[T any] struct {
	done  chan struct{} // closed when the fields below are set
	value T
	err   error
}

// get returns the value at a URL. The error is errBusy if the value cannot be fetched now and no
// older value can be used.
func (r *remoteCache[T]) get(ctx context.Context, address string) (T, error) {
	held, call, err := r.lookup(ctx, address)
	now := time.Now()
	canUseStale := held != nil && held.isWithin(r.staleTime, now)
	switch {
	case err != nil:
		return *new(T), err
	case held != nil && now.Before(held.freshUntil), canUseStale && call != nil: // the call refreshes it
		return held.value, nil
	case call != nil:
		return call.wait(ctx)
	case canUseStale:
		value, err := r.fetchLimited(ctx, address, 0)
		if errors.Is(err, errBusy) {
			return held.value, nil
		}
		return value, err
	}
	return r.fetchLimited(ctx, address, fetchWait)
}

// lookup returns the value of a URL and the fetch in progress, or nil, or the error
// of a recent failure.
func (r *remoteCache[T]) lookup(ctx context.Context, address string) (*cached[T], *fetchCall[T], error) {
	held, call, err := r.lookupMemory(address)
	if err != nil || held != nil || r.load == nil {
		return held, call, err
	}
	loaded, err := r.load(ctx, address)
	if err != nil || loaded == nil {
		return nil, call, err
	}
	r.mu.Lock()
	// The result of a fetch is newer.
	if r.values.Get(address) == nil && r.failures.Get(address) == nil && r.calls[address] == nil {
		r.values.Put(address, loaded)
	}
	r.mu.Unlock()
	return r.lookupMemory(address)
}

func (r *remoteCache[T]) lookupMemory(address string) (*cached[T], *fetchCall[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.failures.Get(address); f != nil && time.Now().Before(f.until) {
		return nil, nil, f.err
	}
	return r.values.Get(address), r.calls[address], nil
}

// fetchLimited fetches a value when the limiter has a slot for it. A request that gets no slot can
// still wait for the fetch of another request.
func (r *remoteCache[T]) fetchLimited(ctx context.Context, address string, maxWait time.Duration) (T, error) {
	release, err := r.limiter.acquire(ctx, maxWait)
	if err == nil {
		defer release()
		return r.fetchOnce(ctx, address)
	}
	if _, call, _ := r.lookupMemory(address); call != nil {
		return call.wait(ctx)
	}
	return *new(T), err
}

func (r *remoteCache[T]) fetchOnce(ctx context.Context, address string) (T, error) {
	call, isNew, err := r.startCall(ctx, address)
	switch {
	case err != nil:
		return *new(T), err
	case !isNew:
		return call.wait(ctx)
	}
	defer r.endCall(address, call) // also after a panic
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	began := time.Now()
	value, fresh, err := r.fetch(ctx, address)
	call.value, call.err = r.store(address, value, fresh, err, began)
	return call.value, call.err
}

// startCall returns the fetch of a URL. isNew reports whether the caller must do it.
func (r *remoteCache[T]) startCall(ctx context.Context, address string) (call *fetchCall[T], isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := r.calls[address]; call != nil {
		return call, false, nil
	}
	call = &fetchCall[T]{done: make(chan struct{}), err: errors.New("the fetch panicked")}
	// Another fetch may have ended since the lookup.
	now, held, failed := time.Now(), r.values.Get(address), r.failures.Get(address)
	switch {
	case failed != nil && now.Before(failed.until):
		return nil, false, failed.err
	case held != nil && now.Before(held.freshUntil):
		call.value, call.err = held.value, nil
		close(call.done)
		return call, false, nil
	case held == nil && !r.limiter.allow(ctx, address):
		return nil, false, errBusy
	}
	r.calls[address] = call
	return call, true, nil
}

// store records the result of a fetch, and returns the result for the callers. A stale value
// replaces an error, unless the error says that the URL is no longer valid.
func (r *remoteCache[T]) store(address string, value T, fresh time.Duration, err error, began time.Time) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, now := r.values.Get(address), time.Now()
	switch {
	case err == nil:
		r.failures.Drop(address)
		r.values.Put(address, &cached[T]{value: value, fetched: began, freshUntil: began.Add(limitFresh(fresh))})
		return value, nil
	case held != nil && held.isWithin(r.staleTime, now) && !isPermanent(err):
		r.values.Put(address, &cached[T]{value: held.value, fetched: held.fetched, freshUntil: now.Add(r.failureTime)})
		return held.value, nil
	case isPermanent(err):
		r.values.Drop(address)
	}
	r.failures.Put(address, &failure{err, now.Add(r.failureTime)})
	return value, err
}

func (r *remoteCache[T]) endCall(address string, call *fetchCall[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, address)
	close(call.done)
}

func (r *remoteCache[T]) peek(address string) *cached[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values.Get(address)
}

func (c *fetchCall[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

func limitFresh(fresh time.Duration) time.Duration { return min(max(fresh, minFresh), maxFresh) }

// isWithin reports whether a value is younger than age. A time in the future means that the clock
// was set back.
func (c *cached[T]) isWithin(age time.Duration, now time.Time) bool {
	actual := now.Sub(c.fetched)
	return actual >= 0 && actual < age
}

// isPermanent reports whether an error of a fetch says that there is no valid value at the URL.
func isPermanent(err error) bool {
	var fetchErr *oauth.FetchError
	var invalid *oauth.DiscoveryError
	switch {
	case errors.As(err, &invalid):
		return true
	case errors.As(err, &fetchErr):
		isTemporary := fetchErr.Status == http.StatusRequestTimeout || fetchErr.Status == http.StatusTooManyRequests
		return fetchErr.Status != 0 && fetchErr.Status < http.StatusInternalServerError && !isTemporary
	}
	return false
}

func hostKey(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
}

const (
	// maxFetches is the maximum number of concurrent fetches. With the largest responses they take
	// 64 MiB.
	maxFetches = 64
	// maxClientFetches is the maximum number of concurrent fetches that a client causes, so that
	// a client that names slow hosts does not delay the others. A login needs one fetch.
	maxClientFetches = 4
	// fetchWait is how long a request waits for another fetch to end.
	fetchWait = time.Second
	// fetchClientBits is the length of the IPv6 prefix that counts as one client here.
	fetchClientBits = 48
)

// errBusy reports that a value cannot be fetched now because the client or the host reached its
// limit.
var errBusy = errors.New("too many fetches for this client or from this host")

// A fetchLimiter limits the fetches of URLs that clients choose: by the client that causes a fetch,
// and by the host.
type fetchLimiter struct {
	limits *limits
	slots  chan struct{} // contains an element for each fetch

	mu      sync.Mutex // guards clients
	clients map[string]*clientSlots
}

type clientSlots struct {
	slots chan struct{} // contains an element for each fetch
	users int           // the requests that hold a slot or wait for one; guarded by fetchLimiter.mu
}

// allow takes a fetch from the rates of the client and the host. It is not used to refresh a value:
// otherwise an attacker could exhaust the rate that keeps the values of others fresh.
func (f *fetchLimiter) allow(ctx context.Context, address string) bool {
	_, ok := reserveAll([]cost{f.limits.cost(limitFetchClient, clientKey(ctx)), f.limits.cost(limitFetchHost,
		hostKey(address))})
	return ok
}

// acquire reserves a slot for a fetch until release is called. It waits up to maxWait, then returns
// errBusy.
func (f *fetchLimiter) acquire(ctx context.Context, maxWait time.Duration) (release func(), err error) {
	key := clientKey(ctx)
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	client := f.addUser(key)
	if err := acquireSlot(ctx, client.slots, timer); err != nil {
		f.removeUser(key, client)
		return nil, err
	}
	if err := acquireSlot(ctx, f.slots, timer); err != nil {
		<-client.slots
		f.removeUser(key, client)
		return nil, err
	}
	return func() {
		<-f.slots
		<-client.slots
		f.removeUser(key, client)
	}, nil
}

func acquireSlot(ctx context.Context, slots chan struct{}, timer *time.Timer) error {
	select {
	case slots <- struct{}{}:
		return nil
	default: // a timer that expired must not win over a free slot
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fetchLimiter) addUser(key string) *clientSlots {
	f.mu.Lock()
	defer f.mu.Unlock()
	client := f.clients[key]
	if client == nil {
		client = &clientSlots{slots: make(chan struct{}, maxClientFetches)}
		f.clients[key] = client
	}
	client.users++
	return client
}

func (f *fetchLimiter) removeUser(key string, client *clientSlots) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if client.users--; client.users == 0 {
		delete(f.clients, key)
	}
}
