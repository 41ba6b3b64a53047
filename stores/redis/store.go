package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// DefaultTimeout is the default of [Options.Timeout]. The limit is short because callers wait
	// for operations, and a server in the same network answers in less than a millisecond.
	DefaultTimeout = 250 * time.Millisecond
	// DefaultEventBytes limits the events of a session by default. The 64 sessions that a
	// principal may have then share the 64 MiB that the store in memory grants a principal.
	DefaultEventBytes = 1 << 20
	// DefaultPrefix is the default prefix of all keys.
	DefaultPrefix = "patchbay"
	// minRate is the rate at which a connection must transfer data, in bytes per second.
	minRate = 16 << 20
	// smallReply is the size of a reply that needs no more time than the timeout, in bytes. For a
	// larger reply, a reader repeats the request with more time.
	smallReply = 256 << 10
	// maxDial limits the time to connect, in [Open] and after a connection breaks.
	maxDial = 5 * time.Second
	// maxPrefix limits a prefix, in bytes.
	maxPrefix = 128
)

// Errors of a [Store]. Test for them with [errors.Is].
var (
	// ErrUnavailable means that the server did not answer in time, or refuses operations for now.
	ErrUnavailable = errors.New("redis: server unavailable")
	// ErrFull means that the memory of the server or a limit of the store is exhausted.
	ErrFull = errors.New("redis: store full")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("redis: store closed")
	// ErrEvicts means that the server may evict keys, and so lose confirmed changes.
	ErrEvicts = errors.New("redis: server evicts keys")
)

// Options are the options of [Open]. The zero value selects the defaults.
type Options struct {
	// Prefix begins all keys. Processes that share a store must use the same prefix. A prefix must
	// not contain braces, which select the slot of a key in a Cluster. Default: [DefaultPrefix].
	Prefix string
	// Timeout limits each operation. Default: [DefaultTimeout].
	Timeout time.Duration
	// EventAge is how long the store keeps events of sessions. Default: 10 minutes.
	EventAge time.Duration
	// EventBytes limits the events of a session, in bytes. The number of sessions times
	// EventBytes limits all events. Default: [DefaultEventBytes].
	EventBytes int
}

// A Store is a connection to a server, a Sentinel group or a Cluster. The methods of a Store return
// stores that use the connection. A Store is safe for concurrent use.
type Store struct {
	client  rueidis.Client
	option  rueidis.ClientOption // contains the password
	server  string               // the addresses, for errors
	opts    Options
	breaker breaker
	push    *push
	closed  atomic.Bool
}

// Open connects to the server of a URL. opts may be nil. The error is [ErrUnavailable] if the
// server does not answer, and [ErrEvicts] if it may evict keys. Opening takes at most 5 seconds for
// each address, and ends with ctx.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	s := &Store{}
	s.push = newPush(s)
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Prefix = cmp.Or(s.opts.Prefix, DefaultPrefix)
	s.opts.Timeout = cmp.Or(s.opts.Timeout, DefaultTimeout)
	s.opts.EventAge = cmp.Or(s.opts.EventAge, defaultEventAge)
	s.opts.EventBytes = cmp.Or(s.opts.EventBytes, DefaultEventBytes)
	switch {
	case len(s.opts.Prefix) > maxPrefix || strings.ContainsAny(s.opts.Prefix, "{}"):
		return nil, fmt.Errorf("redis: invalid prefix %.200q: at most %d bytes, no braces", s.opts.Prefix, maxPrefix)
	case s.opts.Timeout < 0 || s.opts.EventAge < time.Millisecond:
		return nil, errors.New("redis: invalid timeout or event age: must be at least a millisecond")
	case s.opts.EventBytes < 0:
		return nil, fmt.Errorf("redis: invalid event bytes %d: must not be negative", s.opts.EventBytes)
	}
	if err := s.connect(ctx, url); err != nil {
		return nil, err
	}
	if err := s.checkEviction(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context, url string) error {
	option, err := rueidis.ParseURL(url)
	if err != nil { // the error may contain the password
		return errors.New("redis: invalid URL: must have the form redis://user:password@host:port/number")
	}
	s.server = strings.Join(option.InitAddress, ",")
	option.Dialer.Timeout = cmp.Or(option.Dialer.Timeout, maxDial)
	option.DisableCache = true // no store caches on the side of the client
	option.ConnWriteTimeout = cmp.Or(option.ConnWriteTimeout, maxDial)
	s.option = option
	if s.client, err = dial(ctx, option); err != nil {
		return s.failure("connect", err)
	}
	return nil
}

// dial connects to a server. It ends with ctx.
func dial(ctx context.Context, option rueidis.ClientOption) (rueidis.Client, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	type result struct {
		client rueidis.Client
		err    error
	}
	connected := make(chan result)
	go func() { // NewClient has no context: it may end after ctx, when the time to connect is over
		c, err := rueidis.NewClient(option)
		select {
		case connected <- result{c, err}:
		case <-ctx.Done():
			if err == nil {
				c.Close()
			}
		}
	}()
	select {
	case r := <-connected:
		return r.client, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close closes the connections, and waits for calls of receivers. After Close, all stores return
// [ErrClosed].
func (s *Store) Close() {
	if s.closed.CompareAndSwap(false, true) {
		s.push.close()
		s.client.Close()
	}
}

// checkEviction returns an error if a node evicts keys. If the user may not read the settings,
// checkEviction accepts the server.
func (s *Store) checkEviction(ctx context.Context) error {
	for address, node := range s.client.Nodes() {
		reply, err := s.do(ctx, "info", 0, func(ctx context.Context) rueidis.RedisResult {
			return node.Do(ctx, node.B().Info().Section("memory").Build())
		})
		if errors.Is(err, ErrUnavailable) || context.Cause(ctx) != nil {
			return err
		}
		info, _ := reply.ToString()
		if !strings.Contains(info, "maxmemory:0\r") && strings.Contains(info, "maxmemory_policy:") &&
			!strings.Contains(info, "maxmemory_policy:noeviction") {
			return fmt.Errorf("%w: %s: set maxmemory-policy to noeviction", ErrEvicts, address)
		}
	}
	return nil
}

// urgent is the key of a context whose operations are tried also while the breaker is open.
type urgent struct{}

// do runs an operation that transfers size bytes. A reply of nil is no error. The operation counts
// for the breaker unless the context of the caller ended. In a Cluster the breaker refuses nothing,
// because other nodes work while a node fails.
func (s *Store) do(ctx context.Context, op string, size int,
	run func(ctx context.Context) rueidis.RedisResult) (rueidis.RedisMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return rueidis.RedisMessage{}, err
	}
	if s.closed.Load() {
		return rueidis.RedisMessage{}, ErrClosed
	}
	begin := time.Now()
	if !isCluster(s.client) && !s.breaker.allow(begin) && ctx.Value(urgent{}) == nil {
		return rueidis.RedisMessage{}, fmt.Errorf("%w: %s: %s: not tried, after %d failures in a row",
			ErrUnavailable, s.server, op, breakerFailures)
	}
	bounded, cancel := context.WithTimeout(ctx, s.opts.Timeout+time.Duration(size)*time.Second/minRate)
	defer cancel()
	reply, err := run(bounded).ToMessage()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	if err != nil && context.Cause(ctx) != nil {
		return rueidis.RedisMessage{}, context.Cause(ctx)
	}
	if err != nil {
		err = s.failure(op, err)
	}
	s.breaker.done(errors.Is(err, ErrUnavailable), begin, time.Now())
	return reply, err
}

// unavailable contains the codes of errors with which a server temporarily refuses all operations.
var unavailable = map[string]bool{"LOADING": true, "CLUSTERDOWN": true, "MASTERDOWN": true, "TRYAGAIN": true,
	"READONLY": true, "BUSY": true, "NOREPLICAS": true}

func (s *Store) failure(op string, err error) error {
	kind := ErrUnavailable
	if reply, ok := rueidis.IsRedisErr(err); ok {
		code, _, _ := strings.Cut(reply.Error(), " ")
		switch {
		case code == "OOM":
			kind = ErrFull
		case !unavailable[code]:
			return fmt.Errorf("redis: %s: %s: %w", s.server, op, err)
		}
	}
	if s.closed.Load() && errors.Is(err, rueidis.ErrClosing) {
		kind = ErrClosed
	}
	return fmt.Errorf("%w: %s: %s: %w", kind, s.server, op, err)
}
