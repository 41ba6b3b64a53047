package https

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	acmeTimeout  = 30 * time.Second // for one request to the authority
	plainTimeout = 10 * time.Second // for a request over http, whose body is ignored, and its response
	plainHeader  = 8 << 10          // bytes of its header: a browser's without cookies
)

// An authority gets certificates by ACME.
type authority struct {
	manager *autocert.Manager
	http    string // address for challenges; empty for none
}

func newAuthority(settings *gatewayconfig.ACME, o *Options) *authority {
	a := &authority{http: settings.HTTP, manager: &autocert.Manager{
		Prompt: autocert.AcceptTOS, // the settings require it
		Cache:  cache{o.State}, HostPolicy: policy(settings.Hosts), Email: settings.Email,
		Client: &acme.Client{DirectoryURL: settings.Directory, UserAgent: "patchbay",
			HTTPClient: &http.Client{Transport: o.Transport, Timeout: acmeTimeout}},
	}}
	if a.http != "" {
		a.manager.HTTPHandler(nil) // lets the manager use challenges over http
	}
	return a
}

// policy permits the hosts. Requests over http name them with the port, unless it is 80.
func policy(hosts []string) autocert.HostPolicy {
	permit := autocert.HostWhitelist(hosts...)
	return func(ctx context.Context, host string) error {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		return permit(ctx, host)
	}
}

// serve answers challenges over http until ctx ends. The returned function waits for the end.
func (a *authority) serve(ctx context.Context, log *slog.Logger) (wait func(), err error) {
	if a.http == "" {
		return func() {}, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", a.http)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: a.manager.HTTPHandler(nil), ReadTimeout: plainTimeout, WriteTimeout: plainTimeout,
		MaxHeaderBytes: plainHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	done := make(chan struct{})
	go func() { // ends with the server
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("https: challenges over http ended", "address", a.http, "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() }) // its responses are short
	return func() { <-done }, nil
}

// A cache stores certificates in the state of gateways, so that all gateways of a store use the same
// certificates, and each of the gateways answers a challenge.
type cache struct{ entries state.Store }

const cacheKind = "acme"

func (c cache) Get(ctx context.Context, key string) ([]byte, error) {
	value, version, err := c.entries.Get(ctx, cacheKind, key)
	if err == nil && version == 0 {
		err = autocert.ErrCacheMiss
	}
	return value, err
}

func (c cache) Put(ctx context.Context, key string, value []byte) error {
	return c.set(ctx, key, value)
}

func (c cache) Delete(ctx context.Context, key string) error { return c.set(ctx, key, nil) }

// set replaces an entry. If several gateways set it, the last value stays: each of their certificates
// is valid.
func (c cache) set(ctx context.Context, key string, value []byte) error {
	for {
		_, version, err := c.entries.Get(ctx, cacheKind, key)
		if err != nil || version == 0 && value == nil {
			return err
		}
		err = c.entries.CompareAndSet(ctx, cacheKind, key, version, value)
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}
