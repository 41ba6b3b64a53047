package hosting

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
	"github.com/patchbay-mcp/patchbay/stores/redis"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

// Stores are the stores that the processes of a server share. PostgreSQL contains everything that must be durable,
// otherwise Redis does; Redis contains sessions, events, messages and limits. The zero value is the store of a
// single process.
type Stores struct {
	File     string // the path of bolt:PATH; empty without
	redis    *redis.Store
	postgres *postgres.Store
	key      *shared.Key // nil without Redis and PostgreSQL
	places   []string    // the kinds and hosts
}

// Durable contains the stores that Redis and PostgreSQL both implement.
type Durable interface {
	HostState() state.Store
	Logins(principal string) oauthclient.Store
	States() mcp.OnceStore
	Tasks(server string) tasks.SharedStore
}

// Durable returns the store of durable state, or nil without Redis and PostgreSQL.
func (s *Stores) Durable() Durable {
	switch {
	case s == nil || s.redis == nil && s.postgres == nil:
		return nil
	case s.postgres != nil:
		return s.postgres
	}
	return s.redis
}

// The kinds of stores.
const kindFile, kindRedis, kindPostgres = "bolt", "redis", "postgres"

// StoreKind returns the kind of a store whose variables are replaced: "bolt", "redis" or "postgres".
func StoreKind(store string) string {
	switch scheme, _, _ := strings.Cut(store, ":"); strings.ToLower(scheme) {
	case kindFile:
		return kindFile
	case kindPostgres, "postgresql":
		return kindPostgres
	}
	return kindRedis
}

// OpenStores opens the stores of URLs until the command ends. Variables of c replace passwords.
func OpenStores(ctx context.Context, f *cmdutil.Factory, c *Config, urls []string) (*Stores, error) {
	s := &Stores{}
	var lost error // of Redis, for a command beside processes that contain the state elsewhere
	for _, text := range urls {
		store, err := ExpandStore(ctx, f, c, text)
		if err != nil {
			return nil, err
		}
		kind := StoreKind(store)
		second := s.redis != nil || lost != nil
		if kind != kindRedis {
			second = s.postgres != nil || s.File != ""
		}
		if second {
			return nil, exit.UsageError(errors.New(
				"invalid stores: want at most a Redis server, and a PostgreSQL server or a file"))
		}
		if err := s.open(ctx, f, kind, store); err != nil {
			lost = &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf(
				"open the store: %w\nTo find the reason: patchbay doctor store %s", err, term.ShellWord(text))}
			if kind != kindRedis || !c.beside {
				return nil, lost
			}
		}
	}
	switch {
	case lost != nil && s.postgres == nil && s.File == "":
		return nil, lost
	case lost != nil:
		f.IO.Err.Printf("%s without Redis, gateways notice a change a second or two later: %s", f.IO.Warning(),
			term.Clean(lost.Error()))
	}
	if d := s.Durable(); d != nil {
		var err error
		if s.key, err = shared.OpenKey(ctx, d.HostState()); err != nil {
			return nil, &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf("open the store: %w", err)}
		}
	}
	return s, nil
}

func (s *Stores) open(ctx context.Context, f *cmdutil.Factory, kind, store string) (err error) {
	switch kind {
	case kindFile:
		_, s.File, _ = strings.Cut(store, ":")
		s.places = append(s.places, "file "+s.File)
		return nil
	case kindPostgres:
		if s.postgres, err = postgres.Open(ctx, store, nil); err != nil {
			return err
		}
		f.Exit.Add(cmdutil.ExitLocks, s.postgres.Close)
		s.places = append(s.places, kind+" at "+s.postgres.Addresses())
		return nil
	default:
		if s.redis, err = redis.Open(ctx, store, nil); err != nil {
			return err
		}
		f.Exit.Add(cmdutil.ExitLocks, s.redis.Close)
	}
	u, err := url.Parse(store)
	if err == nil {
		s.places = append(s.places, kind+" at "+u.Host)
	}
	return err
}

// Announce prints a line that names the stores and their hosts. If processes share less than with Redis, the line
// says so.
func (s *Stores) Announce(f *cmdutil.Factory) {
	if len(s.places) == 0 {
		return
	}
	missing := ""
	if s.postgres != nil && s.redis == nil {
		missing = "; each process keeps sessions, notifications and limits for itself: " +
			"add --store redis://HOST to share them"
	}
	f.IO.Err.Printf("patchbay: store: %s%s", term.CleanLine(strings.Join(s.places, ", ")), missing)
}

// Configure makes a handler share its sessions and the events of their streams, which requires Redis.
func (s *Stores) Configure(o *mcphttp.Options) {
	if s.redis != nil {
		o.Sessions.Store, o.Sessions.Bus, o.Sessions.Events = s.redis.Sessions(), s.redis.Bus(), s.redis.Events()
	}
}

// Bus returns the bus by which the processes announce changes, or nil without Redis.
func (s *Stores) Bus() replica.Bus {
	if s.redis == nil {
		return nil
	}
	return s.redis.Bus()
}

// StateKeys returns the keys of request states that the processes share, or nil.
func (s *Stores) StateKeys() [][]byte {
	if s.key == nil {
		return nil
	}
	return s.key.StateKeys()
}

// Limits returns the limits that the processes count together, or nil.
func (s *Stores) Limits() state.LimitStore {
	if s == nil || s.redis == nil {
		return nil
	}
	return s.redis.Limits()
}

// State returns the state of gateways: pins, grants, approvals and keys. Processes with Redis announce changes to
// each other.
func (s *Stores) State() (entries state.Store, err error) {
	path := s.File
	switch d := s.Durable(); {
	case path == "" && d != nil:
		entries = d.HostState()
	case path == "":
		dir, err := userdir.Dir("gateway")
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "state.db")
		fallthrough
	default:
		if entries, err = bolt.OpenState(path, nil); err != nil { // several gateways may use the file at once
			return nil, err
		}
	}
	if bus := s.Bus(); bus != nil {
		entries = state.Share(entries, bus)
	}
	return entries, nil
}

// ErrSharedWebhooks is returned by Webhooks: the processes of a gateway cannot share the subscriptions.
var ErrSharedWebhooks = errors.New("webhooks of events are not offered with a store in Redis or PostgreSQL, because " +
	"a single process must deliver them")

// Webhooks opens the subscriptions of the webhooks of a gateway: in a file, or beside the state if path is empty. The
// error is [ErrSharedWebhooks], or [bolt.ErrInUse] if another gateway delivers for them.
func (s *Stores) Webhooks(path string) (*bolt.WebhookStore, error) {
	switch {
	case s.Durable() != nil:
		return nil, ErrSharedWebhooks
	case path != "":
	case s.File != "":
		path = s.File + ".webhooks"
	default:
		dir, err := userdir.Dir("gateway")
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "webhooks.db")
	}
	return bolt.OpenWebhooks(path, &bolt.Options{Wait: -1})
}

// A StoreReadiness is the condition of a store of several processes, for /readyz?verbose. It contains no address.
type StoreReadiness struct {
	Kind  string `json:"kind"`  // "redis" or "postgres"
	State string `json:"state"` // "available", "unavailable", or "other key"
}

// readyTimeout limits the time for which the readiness waits for a store.
const readyTimeout = time.Second

// Readiness returns the conditions of the stores in Redis and PostgreSQL.
func (s *Stores) Readiness() (all []StoreReadiness) {
	if s == nil || s.key == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if s.postgres == nil {
		return append(all, readinessOf(kindRedis, s.key.Ready(ctx)))
	}
	if s.redis != nil {
		_, _, err := s.redis.HostState().Get(ctx, "check", "readiness")
		all = append(all, readinessOf(kindRedis, err))
	}
	err := s.postgres.Ready(ctx)
	if err == nil {
		err = s.key.Ready(ctx)
	}
	return append(all, readinessOf(kindPostgres, err))
}

func readinessOf(kind string, err error) StoreReadiness {
	switch {
	case errors.Is(err, shared.ErrOtherKey):
		return StoreReadiness{kind, "other key"}
	case err != nil:
		return StoreReadiness{kind, "unavailable"}
	}
	return StoreReadiness{kind, "available"}
}

// ExpandStore returns the URL of a store with its variables replaced. A value before the last @, such as a
// password, or in the query is percent-encoded, so that it may contain any character.
func ExpandStore(ctx context.Context, f *cmdutil.Factory, c *Config, text string) (string, error) {
	err := gatewayconfig.CheckStore(text)
	address, _, _ := strings.Cut(text, "?")
	host := strings.LastIndex(address, "@") + 1
	end := 0 // of the previous variable
	store := netx.ReplaceVariables(text, func(variable string) string {
		begin := end + strings.Index(text[end:], variable)
		end = begin + len(variable)
		value, invalid := (&config.Server{URL: variable}).ExpandURL(ctx, LookupFor(ctx, f, c))
		if err == nil {
			err = errors.Unwrap(invalid) // without the name of a server
		}
		if begin < host || begin > len(address) {
			value = strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
		}
		return value
	})
	if scheme, _, found := strings.Cut(store, "://"); err == nil && found {
		err = gatewayconfig.CheckStore(scheme + "://host") // of a variable that contains the whole URL
	}
	if err != nil {
		return "", exit.UsageError(fmt.Errorf("invalid store: %w", err))
	}
	return store, nil
}
