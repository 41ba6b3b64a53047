package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// DefaultTimeout bounds an operation by default. A server in the same network answers in less than a
	// millisecond, and a caller waits for the operation.
	DefaultTimeout = 250 * time.Millisecond
	// DefaultPrefix is the default prefix of all keys.
	DefaultPrefix = "patchbay"
	// minRate is the number of bytes a second that a connection must transfer.
	minRate = 16 << 20
	// smallReply is the number of bytes of a reply that need no more time than the timeout. A reader asks
	// a second time for a larger reply, with the time for its size.
	smallReply = 256 << 10
	// maxDial bounds the time to connect, in [Open] and after a connection broke.
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
	// ErrEvicts means that the server may evict keys, which would lose what a store confirmed.
	ErrEvicts = errors.New("redis: server evicts keys")
)

// Options are the options of [Open]. The zero value selects the defaults.
type Options struct {
	// Prefix begins all keys. Processes that share a store use the same prefix. It must not contain
	// braces, which select the slot of a key in a Cluster. Default: [DefaultPrefix].
	Prefix string
	// Timeout bounds each operation. Default: [DefaultTimeout].
	Timeout time.Duration
	// EventAge is the time for which events of sessions are kept. Default: 10 minutes.
	EventAge time.Duration
}

// A Store is a connection to a server, a Sentinel group or a Cluster. Its methods return the stores that
// use the connection. It is safe for concurrent use.
type Store struct {
	client  rueidis.Client
	server  string // the addresses, for errors
	opts    Options
	breaker breaker
	closed  atomic.Bool
}

// Open connects to the server of a URL. opts may be nil. The error is [ErrUnavailable] if the server does
// not answer, and [ErrEvicts] if it may evict keys. Opening takes at most 5 seconds for each address.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	s := &Store{}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Prefix = cmp.Or(s.opts.Prefix, DefaultPrefix)
	s.opts.Timeout = cmp.Or(s.opts.Timeout, DefaultTimeout)
	s.opts.EventAge = cmp.Or(s.opts.EventAge, defaultEventAge)
	switch {
	case len(s.opts.Prefix) > maxPrefix || strings.ContainsAny(s.opts.Prefix, "{}"):
		return nil, fmt.Errorf("redis: invalid prefix %.200q: must have at most %d bytes and no braces",
			s.opts.Prefix, maxPrefix)
	case s.opts.Timeout < 0 || s.opts.EventAge < time.Millisecond:
		return nil, fmt.Errorf("redis: invalid timeout %v or event age %v: must be positive",
			s.opts.Timeout, s.opts.EventAge)
	}
	client, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	s.server = strings.Join(client.InitAddress, ",")
	if err := s.connect(ctx, client); err != nil {
		return nil, err
	}
	if err := s.checkEviction(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// parseURL does not return the errors of the parser, which quote the URL with its password.
func parseURL(url string) (rueidis.ClientOption, error) {
	client, err := rueidis.ParseURL(url)
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme {
	case "redis", "rediss", "valkey", "valkeys", "unix":
	default:
		return client, errors.New("redis: invalid URL: must begin with redis:// or rediss://")
	}
	if err != nil {
		return client, fmt.Errorf("redis: invalid URL: must have the form %s://user:password@host:port/number", scheme)
	}
	return client, nil
}

func (s *Store) connect(ctx context.Context, client rueidis.ClientOption) (err error) {
	if client.Dialer.Timeout <= 0 {
		client.Dialer.Timeout = maxDial
	}
	if deadline, ok := ctx.Deadline(); ok {
		client.Dialer.Timeout = max(min(client.Dialer.Timeout, time.Until(deadline)), time.Millisecond)
	}
	client.DisableCache = true // no store caches on the side of the client
	client.ConnWriteTimeout = cmp.Or(client.ConnWriteTimeout, maxDial)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.client, err = rueidis.NewClient(client); err != nil {
		return s.failure("connect", err)
	}
	return nil
}

// Close closes the connections. Afterwards all stores return [ErrClosed].
func (s *Store) Close() {
	if s.closed.CompareAndSwap(false, true) {
		s.client.Close()
	}
}

// A Report describes a node, as far as a store depends on it.
type Report struct {
	// Address is the host and port of the node.
	Address string
	// Version is the version of Redis, or of Redis that Valkey is compatible with.
	Version string
	// Evicts reports whether the node evicts keys when its memory is full.
	Evicts bool
	// AppendOnly reports whether the node writes an append-only file. Without it a crash of the node
	// loses what the stores confirmed since the last snapshot.
	AppendOnly bool
}

// Check returns a report for each node, replicas included.
func (s *Store) Check(ctx context.Context) ([]Report, error) {
	var reports []Report
	for address, node := range s.client.Nodes() {
		info := map[string]string{}
		for _, section := range []string{"server", "memory", "persistence"} {
			reply, err := s.do(ctx, "info", 0, func(ctx context.Context) rueidis.RedisResult {
				return node.Do(ctx, node.B().Info().Section(section).Build())
			})
			if err != nil {
				return nil, err
			}
			text, _ := reply.ToString()
			for line := range strings.Lines(text) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
					info[name] = value
				}
			}
		}
		limit, _ := strconv.ParseUint(info["maxmemory"], 10, 64)
		reports = append(reports, Report{
			Address: address, Version: info["redis_version"], AppendOnly: info["aof_enabled"] == "1",
			Evicts: limit > 0 && info["maxmemory_policy"] != "noeviction",
		})
	}
	return reports, nil
}

// checkEviction returns an error if a node evicts keys. A user without the right to read the settings
// may use the server all the same.
func (s *Store) checkEviction(ctx context.Context) error {
	reports, err := s.Check(ctx)
	if errors.Is(err, ErrUnavailable) || context.Cause(ctx) != nil {
		return err
	}
	for _, r := range reports {
		if r.Evicts {
			return fmt.Errorf("%w: %s: set maxmemory-policy to noeviction", ErrEvicts, r.Address)
		}
	}
	return nil
}

// do runs an operation that transfers size bytes. A reply of nil is no error. The operation counts for the
// breaker unless the context of the caller ended.
func (s *Store) do(ctx context.Context, op string, size int,
	run func(ctx context.Context) rueidis.RedisResult) (rueidis.RedisMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return rueidis.RedisMessage{}, err
	}
	if s.closed.Load() {
		return rueidis.RedisMessage{}, ErrClosed
	}
	if !s.breaker.allow(time.Now()) {
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
	s.breaker.done(errors.Is(err, ErrUnavailable), time.Now())
	return reply, err
}

// unavailable are the first words of errors with which a server refuses any operation for a time.
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
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Err != nil {
		err = dial.Err // the address is in the error already
	}
	return fmt.Errorf("%w: %s: %s: %w", kind, s.server, op, err)
}
