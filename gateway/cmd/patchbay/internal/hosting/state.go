package hosting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

// Stored returns a value of the vault. For an absent key it stores the value of create.
func Stored(ctx context.Context, v *vault.Vault, key string, create func() []byte) (value []byte, err error) {
	if value, err = v.Load(ctx, key); err != nil || value != nil {
		return value, err
	}
	err = v.Update(ctx, key, func(old []byte) ([]byte, error) {
		if value = old; value == nil { // no other process was faster
			value = create()
		}
		if len(value) == 0 {
			return nil, errors.New("empty value")
		}
		return value, nil
	})
	return value, err
}

// Stores are the stores that the processes of a server share. The zero value is the store of a single
// process.
type Stores struct {
	Shared *shared.Store // in Redis; nil without
	File   string        // the path of bolt:PATH; empty without
}

// OpenStores opens the stores of URLs until the command ends. Variables of c replace passwords.
func OpenStores(ctx context.Context, f *cmdutil.Factory, c *Config, urls []string) (*Stores, error) {
	s := &Stores{}
	for _, text := range urls {
		store, err := ExpandStore(ctx, f, c, text)
		if err != nil {
			return nil, err
		}
		file, isFile := strings.CutPrefix(store, "bolt:")
		switch {
		case isFile && s.File != "", !isFile && s.Shared != nil:
			return nil, exit.UsageError(errors.New("invalid stores: want at most a Redis server and a file"))
		case isFile:
			s.File = file
			continue
		}
		if s.Shared, err = shared.Open(ctx, store); err != nil {
			return nil, &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf(
				"open the store: %w\nTo find the reason: patchbay doctor store %s", err, term.ShellWord(text))}
		}
		f.Exit.Add(cmdutil.ExitLocks, s.Shared.Close)
	}
	return s, nil
}

// noticeTime is how long a process of several serves new requests after it was told to end. Its readiness is over
// then, so that a load balancer that asks each second sends its requests to other processes.
const noticeTime = 5 * time.Second

// Serving returns a context and a listener for a server. The context ends with ctx. If the server is one of several
// processes, the context ends noticeTime later, and the listener then refuses connections while calls are still
// running, so that a load balancer without checks uses another process, too.
func (s *Stores) Serving(ctx context.Context, l net.Listener) (context.Context, net.Listener) {
	if s.Shared == nil {
		return ctx, l
	}
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		time.AfterFunc(noticeTime, func() {
			_ = l.Close() // the server closes it again
			end(context.Cause(ctx))
		})
	})
	return serving, &leaving{Listener: l, closed: make(chan struct{})}
}

// A leaving listener is closed before its server ends.
type leaving struct {
	net.Listener
	once   sync.Once
	closed chan struct{} // closed by the server
}

func (l *leaving) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if errors.Is(err, net.ErrClosed) {
		<-l.closed // a server whose listener fails ends at once
	}
	return c, err
}

func (l *leaving) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// ExpandStore returns the URL of a store with its variables replaced. A value before the last @, such as a
// password, is percent-encoded, so that it may contain any character.
func ExpandStore(ctx context.Context, f *cmdutil.Factory, c *Config, text string) (string, error) {
	err := gatewayconfig.CheckStore(text)
	host := strings.LastIndex(text, "@") + 1
	end := 0 // of the previous variable
	store := netx.ReplaceVariables(text, func(variable string) string {
		begin := end + strings.Index(text[end:], variable)
		end = begin + len(variable)
		value, invalid := (&config.Server{URL: variable}).ExpandURL(ctx, LookupFor(ctx, f, c))
		if err == nil {
			err = errors.Unwrap(invalid) // without the name of a server
		}
		if begin < host {
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

// State returns the state of gateways: pins, grants, approvals and keys. Processes with a store in Redis
// announce changes to each other.
func (s *Stores) State() (state.Store, error) {
	path := s.File
	if path == "" && s.Shared != nil {
		return state.Share(s.Shared.Redis.HostState(), s.Shared.Redis.Bus()), nil
	}
	if path == "" {
		dir, err := userdir.Dir("gateway")
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, "state.db")
	}
	file, err := bolt.OpenState(path, nil) // several gateways may use the file at once
	if err != nil || s.Shared == nil {
		return file, err
	}
	return state.Share(file, s.Shared.Redis.Bus()), nil
}

// OpenStores opens the stores of --store, or of the settings, once.
func (c *Config) OpenStores(ctx context.Context, f *cmdutil.Factory) (err error) {
	urls := f.Flags.Store
	if len(urls) == 0 {
		settings, err := gatewayconfig.Read(c.File)
		if err != nil {
			return exit.UsageError(err) // the default would be a wrong store
		}
		urls = settings.Store
	}
	if c.Stores == nil {
		c.Stores, err = OpenStores(ctx, f, c, urls)
	}
	return err
}

// State returns the state of gateways with this configuration.
func (c *Config) State(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	if err := c.OpenStores(ctx, f); err != nil {
		return nil, err
	}
	return c.Stores.State()
}

// GatewayState returns the state of the gateways of this user, for commands beside them.
func GatewayState(ctx context.Context, f *cmdutil.Factory) (state.Store, error) {
	c, invalid, err := MergedConfig(f, configs.Files(f.Flags.Config), "")
	if f.Config.NamesConfig() {
		err = errors.Join(append(invalid, err)...) // the file may name a store
	}
	if err != nil {
		return nil, exit.UsageError(err)
	}
	return c.State(ctx, f)
}

// A StoreReadiness is the condition of the store of several processes, for /readyz?verbose. It
// contains no address.
type StoreReadiness struct {
	Kind  string `json:"kind"`  // "redis"
	State string `json:"state"` // "available", "unavailable", or "other key"
}

// Readiness returns the condition of the store in Redis, or nil without such a store.
func (s *Stores) Readiness() *StoreReadiness {
	if s == nil || s.Shared == nil {
		return nil
	}
	switch err := s.Shared.Ready(context.Background()); { // takes less than a second
	case errors.Is(err, shared.ErrOtherKey):
		return &StoreReadiness{"redis", "other key"}
	case err != nil:
		return &StoreReadiness{"redis", "unavailable"}
	}
	return &StoreReadiness{"redis", "available"}
}

// SecretStamp returns the file that is written when a secret changes: gateways watch it.
func SecretStamp() (string, error) {
	dir, err := userdir.Dir("gateway")
	return filepath.Join(dir, "secrets-changed"), err
}
