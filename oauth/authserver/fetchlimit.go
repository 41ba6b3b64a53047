package authserver

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxFetches is the maximum number of concurrent fetches. With the largest responses they take
	// 64 MiB.
	maxFetches = 64
	// maxClientFetches is the maximum number of concurrent fetches that one client causes, so that
	// a client that names slow hosts does not delay the others. A login needs one.
	maxClientFetches = 4
	// fetchWait is how long a request waits for another fetch to end.
	fetchWait = time.Second
	// fetchClientBits is the length of the IPv6 prefix that counts as one client here.
	fetchClientBits = 48
)

// errBusy reports that a value cannot be fetched now because the client or the host has reached its
// limit.
var errBusy = errors.New("too many fetches for this client or from this host")

// A fetchLimiter limits the fetches of URLs that clients choose: by the client that causes a fetch,
// and by the host.
type fetchLimiter struct {
	limits *limits
	slots  chan struct{} // has an element for each fetch

	mu      sync.Mutex // guards clients
	clients map[string]*clientSlots
}

type clientSlots struct {
	slots chan struct{} // has an element for each fetch
	users int           // the requests that hold a slot or wait for one; guarded by fetchLimiter.mu
}

func newFetchLimiter(l *limits) *fetchLimiter {
	return &fetchLimiter{limits: l, slots: make(chan struct{}, maxFetches), clients: map[string]*clientSlots{}}
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
	default: // a timer that has expired must not win over a free slot
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
