// Package shared connects the processes of one server through Redis, so that a load balancer may
// send each request to any process.
//
//	store, err := shared.Open(ctx, url)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	server := mcp.NewServer("press", "1.0.0", &mcp.ServerOptions{
//		StateKeys: store.StateKeys(), StateStore: store.Redis.States(),
//	})
//	opts := &mcphttp.Options{}
//	store.Configure(opts)
//	handler := mcphttp.NewHandler(server, opts)
//
// [Check] finds out why a store does not work.
package shared

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// ErrOtherKey means that the store contains a key of request states that this process does not use,
// because the store lost its data. The process rejects request states of processes that started
// later: restart the processes.
var ErrOtherKey = errors.New("shared: the store contains another key of request states")

// The entry of the host state that contains the key of request states.
const keyKind, keyName, keySize = "secret", "state key", 32

// A Key is the key of request states that several processes share in a store. A Key is safe for
// concurrent use.
type Key struct {
	entries state.Store
	key     []byte
}

// OpenKey returns the key of request states in a store of host state, such as HostState of package
// postgres. The first process of a server stores a random key. Anybody who can read the key can also
// read and change everything else in the store.
func OpenKey(ctx context.Context, entries state.Store) (*Key, error) {
	k := &Key{entries, make([]byte, keySize)}
	_, _ = rand.Read(k.key) // never fails
	stored, err := k.stored(ctx)
	if err != nil {
		return nil, fmt.Errorf("share the key of request states: %w", err)
	}
	k.key = stored
	return k, nil
}

// stored returns the key in the store. If the store contains no key, because it is new or lost its
// data while this process runs, stored stores the key of this process.
func (k *Key) stored(ctx context.Context) ([]byte, error) {
	for {
		key, _, err := k.entries.Get(ctx, keyKind, keyName)
		if err == nil && key == nil {
			key, err = k.key, k.entries.CompareAndSet(ctx, keyKind, keyName, 0, k.key)
		}
		switch {
		case errors.Is(err, state.ErrConflict): // another process was faster
		case err != nil:
			return nil, err
		case len(key) != keySize:
			return nil, fmt.Errorf("shared: invalid key of %d bytes: must have %d", len(key), keySize)
		default:
			return key, nil
		}
	}
}

// StateKeys returns the keys for [mcp.ServerOptions] or the options of a host.
func (k *Key) StateKeys() [][]byte { return [][]byte{k.key} }

// Ready returns an error if the store is unavailable, or [ErrOtherKey].
func (k *Key) Ready(ctx context.Context) error {
	key, err := k.stored(ctx)
	if err == nil && !bytes.Equal(key, k.key) {
		err = ErrOtherKey
	}
	return err
}

// A Store is a connection to the store of several processes. A Store is safe for concurrent use.
type Store struct {
	// Redis contains the stores. It must not be changed.
	Redis *redis.Store
	key   *Key
}

// Open connects to the Redis or Valkey server of a URL; see [redis.Open]. The server also contains
// the key of request states; see [OpenKey].
func Open(ctx context.Context, url string) (*Store, error) {
	r, err := redis.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	key, err := OpenKey(ctx, r.HostState())
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Store{r, key}, nil
}

// StateKeys returns the keys for [mcp.ServerOptions] or the options of a host.
func (s *Store) StateKeys() [][]byte { return s.key.StateKeys() }

// Configure makes a handler share its sessions and the events of their streams through the store.
// All handlers that share a store must serve equal servers to the same principals.
func (s *Store) Configure(o *mcphttp.Options) {
	o.Sessions.Store, o.Sessions.Bus, o.Sessions.Events = s.Redis.Sessions(), s.Redis.Bus(), s.Redis.Events()
}

// Ready returns an error if the store is unavailable, or [ErrOtherKey]. It takes less than a second.
func (s *Store) Ready(ctx context.Context) error { return s.key.Ready(ctx) }

// Close closes the connections of the store.
func (s *Store) Close() { s.Redis.Close() }
