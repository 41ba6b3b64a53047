package gateway

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// keysAge is how old the keys in memory may be when a request is admitted, and how often they
	// are read while requests are open: a revoked key ends within it.
	keysAge = time.Second
	// maxEarlyReads limits the reads of the store in that time for unknown keys, which may be new.
	maxEarlyReads = 20
	// keysMaxAge limits how long keys stay valid while the store cannot be read. After that,
	// requests of principals are rejected and end: a key may be revoked.
	keysMaxAge = 30 * time.Second
	// keysTimeout limits one read of the store, for which requests wait.
	keysTimeout = 2 * time.Second
	// usedInterval is how often the use of a key is recorded.
	usedInterval = time.Minute
)

// Reasons of refusals, for logs and records. Clients are not told.
var (
	errMissingKey = errors.New("missing key")
	errWrongKey   = errors.New("wrong key")
	errExpiredKey = errors.New("expired key")
	errRevokedKey = errors.New("revoked key")
)

// errKeysUnread: the store cannot be read.
var errKeysUnread = errors.New("the keys cannot be read")

// liveKeys are the keys of a store as a gateway uses them.
type liveKeys struct {
	store *KeyStore
	log   *slog.Logger
	// used is called once a minute for a key in use, ended for a key that has ended. Neither may
	// block.
	used  func(k *Key)
	ended func(k *Key, why error)

	work sync.WaitGroup // writes of touch, and retry
	stop func()         // ends the calls of changed

	mu     sync.Mutex // guards the fields below
	quit   func()     // ends retry; nil while reads succeed
	byHash map[keyHash]*liveKey
	gone   map[keyHash]*liveKey // revoked keys, for logs and records
	read   time.Time            // when byHash was read
	early  int                  // readings since then for unknown keys
	open   int                  // requests in progress
	timer  *time.Timer
	closed bool
}

// A liveKey is a key whose requests may be in progress.
type liveKey struct {
	Key     // as it was when it was read first
	hash    keyHash
	caller  *mcp.Principal
	opens   *grant
	ctx     context.Context // ends with the key
	end     context.CancelCauseFunc
	touched time.Time
}

// find returns a key that has not ended. The time of the look-up depends only on the hash, which
// does not reveal a key.
func (l *liveKeys) find(hash keyHash) (*liveKey, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(); err != nil {
		return nil, err
	}
	k := l.byHash[hash]
	if k == nil && l.quit == nil && l.early < maxEarlyReads {
		l.early++
		l.readKeys(l.read)
		k = l.byHash[hash]
	}
	if k == nil || subtle.ConstantTimeCompare(k.hash[:], hash[:]) != 1 {
		if k = l.gone[hash]; k != nil {
			return k, errRevokedKey
		}
		if l.quit != nil { // the key may be new
			return nil, errKeysUnread
		}
		return nil, errWrongKey
	}
	now := time.Now()
	if k.IsExpired(now) {
		return k, errExpiredKey
	}
	if now.Sub(k.touched) >= usedInterval && !l.closed {
		k.touched = now
		l.work.Go(func() { l.touch(k, now) })
	}
	return k, nil
}

// named returns the key with a name that has not ended. The error is errKeysUnread while that is not known. l may be
// nil: without a store there is no key.
func (l *liveKeys) named(name string) (*liveKey, error) {
	if l == nil {
		return nil, errRevokedKey
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(); err != nil { // it is logged
		return nil, err
	}
	for _, k := range l.byHash {
		switch {
		case k.Name != name:
		case k.IsExpired(time.Now()):
			return nil, errExpiredKey
		default:
			return k, nil
		}
	}
	if l.quit != nil { // the key may be new
		return nil, errKeysUnread
	}
	return nil, errRevokedKey
}

// touch records the use of a key.
func (l *liveKeys) touch(k *liveKey, now time.Time) {
	l.used(&k.Key)
	ctx, cancel := context.WithTimeout(context.Background(), keysTimeout)
	defer cancel()
	if err := l.store.touch(ctx, k.Name, k.hash, now); err != nil {
		l.log.Debug("gateway: use of a key not recorded", "key", k.Name, "error", err)
	}
}

// refresh reads the keys if they are older than keysAge. After a failure retry reads them instead:
// callers do not wait for a store that does not answer. The lock is held.
func (l *liveKeys) refresh() error {
	now := time.Now()
	if now.Sub(l.read) < keysAge {
		return nil
	}
	if l.quit == nil {
		l.early = 0
		l.readKeys(now)
	}
	if now.Sub(l.read) >= keysMaxAge {
		for _, k := range l.byHash {
			k.end(errKeysUnread)
		}
		l.byHash = nil
		return errKeysUnread
	}
	return nil
}

// changed reads the keys because another process changed them.
func (l *liveKeys) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quit == nil {
		l.readKeys(time.Now())
	}
}

// readKeys reads the keys. After a failure, retry does so until it succeeds. The lock is held.
func (l *liveKeys) readKeys(now time.Time) {
	all, err := l.list(context.Background())
	switch {
	case err == nil:
		l.use(all, now)
	case !l.closed:
		ctx, cancel := context.WithCancel(context.Background())
		l.quit = cancel
		l.work.Go(func() { l.retry(ctx) })
	}
}

// retry reads the keys without the lock until it succeeds or ctx ends.
func (l *liveKeys) retry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(keysAge):
		}
		now := time.Now()
		all, err := l.list(ctx)
		if err != nil {
			continue // it is logged
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quit()
		l.quit = nil
		l.use(all, now)
		return
	}
}

// list returns the keys of the store.
func (l *liveKeys) list(ctx context.Context) (all map[keyHash]*storedKey, err error) {
	bounded, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	all = map[keyHash]*storedKey{}
	for e, err := range l.store.state.List(bounded, stateKind) {
		if err != nil {
			if ctx.Err() == nil {
				l.log.Error("gateway: keys not read", "error", err)
			}
			return nil, err
		}
		stored, hash, err := decodeKey(e.Value)
		if err != nil || stored.Name != e.Key {
			l.log.Warn("gateway: key ignored: its entry is damaged or of another version",
				"key", fmt.Sprintf("%.80q", e.Key))
			continue
		}
		all[hash] = stored
	}
	return all, nil
}

// use replaces the keys, and ends keys that were removed, expired or replaced. The lock is held.
func (l *liveKeys) use(all map[keyHash]*storedKey, now time.Time) {
	found := map[keyHash]*liveKey{}
	for hash, stored := range all {
		k := l.byHash[hash]
		if k == nil || !k.isSame(&stored.Key) {
			k = &liveKey{Key: stored.Key, hash: hash, touched: stored.Used, caller: stored.principal(),
				opens: stored.grant()}
			k.ctx, k.end = context.WithCancelCause(context.Background())
		}
		found[hash] = k
	}
	for hash, k := range l.byHash {
		if found[hash] != k {
			l.endKey(k, errRevokedKey)
			if len(l.gone) >= maxKeys || l.gone == nil {
				l.gone = map[keyHash]*liveKey{}
			}
			l.gone[hash] = k
		}
	}
	for _, k := range found {
		if k.IsExpired(now) {
			l.endKey(k, errExpiredKey)
		}
	}
	l.byHash, l.read = found, now
}

// isSame reports whether two keys with one secret are equal, except for the time of their last use.
func (k *liveKey) isSame(now *Key) bool {
	a, b := k.Key, *now
	a.Used, b.Used = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// endKey ends the requests of a key.
func (l *liveKeys) endKey(k *liveKey, why error) {
	if k.ctx.Err() == nil {
		k.end(why)
		l.ended(&k.Key, why)
	}
}

// begin returns a context for a request with a key; it ends with the key. The caller must call done
// at the end of the request.
func (l *liveKeys) begin(parent context.Context, k *liveKey) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(k.ctx, func() {
		cancel(fmt.Errorf("%w: %w", mcp.ErrClosed, context.Cause(k.ctx)))
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	if l.open == 1 {
		l.timer = time.AfterFunc(keysAge, l.poll)
	}
	return ctx, func() {
		stop()
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open--; l.open == 0 {
			l.timer.Stop()
		}
	}
}

// poll reads the keys while requests are open.
func (l *liveKeys) poll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == 0 {
		return
	}
	_ = l.refresh() // it is logged, and the next request is refused
	now := time.Now()
	for _, k := range l.byHash {
		if k.IsExpired(now) {
			l.endKey(k, errExpiredKey)
		}
	}
	l.timer = time.AfterFunc(keysAge, l.poll)
}

// close waits until pending records are written.
func (l *liveKeys) close() {
	l.stop()
	l.mu.Lock()
	l.closed = true
	if l.quit != nil {
		l.quit()
	}
	l.mu.Unlock()
	l.work.Wait()
}
