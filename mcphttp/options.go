package mcphttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options configures a [Handler]. The zero value is safe and right for most servers.
type Options struct {
	// AllowedOrigins lists the origins of web pages that may use the server, such as
	// https://app.example.com. The server's own origin is always allowed. Clients that are not
	// browsers send no origin and are always allowed. Default: none.
	AllowedOrigins []string
	// InsecureAnyOrigin allows the pages of every origin. Then any page that a user of the server
	// visits can use it.
	InsecureAnyOrigin bool
	// AllowedHosts lists the names by which clients may call the server, with or without a port,
	// such as mcp.example.com. Behind a proxy on the same machine it is the name that the proxy
	// passes on. Default: any name, except that connections to a loopback address must use
	// localhost or a loopback address, which protects local servers from DNS rebinding.
	AllowedHosts []string
	// InsecureAnyHost allows any name on connections to a loopback address.
	InsecureAnyHost bool

	// MaxBody is the largest body of a request, in bytes. All bodies in memory together take at
	// most 256 MiB, the bodies of a principal at most 64 MiB. The filters of open subscriptions
	// take half of that in addition. Default: 4 MiB.
	MaxBody int64
	// MaxHeaderLines and MaxHeaderBytes limit the header block of a request. Defaults: 100 and 64
	// KiB.
	MaxHeaderLines int
	MaxHeaderBytes int
	// BodyTimeout is how long the body of a request may take to arrive. In every 10 seconds at
	// least 5 KiB of it must arrive. Default: 30 seconds.
	BodyTimeout time.Duration
	// WriteTimeout is how long a client may take to read a response, or the events of a write.
	// After that its connection counts as lost. Default: 30 seconds.
	WriteTimeout time.Duration
	// KeepAlive is the interval of the comments on an event stream that keep proxies from closing
	// it. Default: 15 seconds.
	KeepAlive time.Duration

	// AnonymousKey returns a key that distinguishes anonymous callers, such as the network address
	// of the client. Callers with the same key share the limits of a principal. It must
	// be safe for concurrent use. All anonymous callers together get at most half of a limit, so
	// that the rest is left to principals. Default: anonymous callers share the same half.
	AnonymousKey func(r *http.Request) string
	// MaxInFlight and MaxInFlightPerPrincipal limit the requests in progress in total and for each
	// principal, over all its sessions. Subscriptions and waits for tasks do not count. A server
	// with a lower [mcp.ServerOptions.MaxInFlight] should set MaxInFlight to the same value, so
	// that half of it is left to principals. Defaults: 10,000 and 256.
	MaxInFlight             int
	MaxInFlightPerPrincipal int
	// MaxListens and MaxListensPerPrincipal limit the open subscriptions in total and for each
	// principal. Defaults: 10,000 and 64.
	MaxListens             int
	MaxListensPerPrincipal int

	// Sessions configures the sessions of clients of revisions before 2026-07-28.
	Sessions SessionOptions

	// Logger logs refused requests and failures. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) fillDefaults() {
	setDefault(&o.MaxBody, 4<<20)
	setDefault(&o.MaxHeaderLines, 100)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	setDefault(&o.BodyTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.KeepAlive, 15*time.Second)
	setDefault(&o.MaxInFlight, 10_000)
	setDefault(&o.MaxInFlightPerPrincipal, 256)
	setDefault(&o.MaxListens, 10_000)
	setDefault(&o.MaxListensPerPrincipal, 64)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Sessions.fillDefaults()
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func (o *Options) validate() error {
	errs := []error{
		positive("MaxBody", o.MaxBody), positive("BodyTimeout", o.BodyTimeout),
		positive("MaxHeaderLines", o.MaxHeaderLines), positive("MaxHeaderBytes", o.MaxHeaderBytes),
		positive("WriteTimeout", o.WriteTimeout), positive("KeepAlive", o.KeepAlive),
		positive("MaxInFlight", o.MaxInFlight),
		positive("MaxInFlightPerPrincipal", o.MaxInFlightPerPrincipal),
		positive("MaxListens", o.MaxListens), positive("MaxListensPerPrincipal", o.MaxListensPerPrincipal),
		o.Sessions.validate(),
	}
	for _, origin := range o.AllowedOrigins {
		errs = append(errs, checkOrigin(origin))
	}
	for _, host := range o.AllowedHosts {
		errs = append(errs, checkHost(host))
	}
	return errors.Join(errs...)
}

func positive[T int | int64 | time.Duration](name string, value T) error {
	if value < 0 {
		return fmt.Errorf("invalid %s %v: must be positive", name, value)
	}
	return nil
}
