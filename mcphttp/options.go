package mcphttp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Options configures a [Handler]. The zero value is right and safe for most servers.
type Options struct {
	// AllowedOrigins are the origins of web pages that may use the server, each like https://app.example.com. The
	// server's own origin is always allowed, and so are clients that are not browsers: they send no origin. Default:
	// none.
	AllowedOrigins []string
	// InsecureAnyOrigin lets the pages of every origin in. Then any page that a user of the server visits can use it.
	InsecureAnyOrigin bool
	// AllowedHosts are the names by which clients may call the server, with or without a port, such as
	// mcp.example.com. Behind a proxy on the same machine it is the name that the proxy passes on. Default: any name,
	// but only localhost and loopback addresses on connections that come in at a loopback address, which is what
	// protects local servers from DNS rebinding.
	AllowedHosts []string
	// InsecureAnyHost lets a server at a loopback address answer to any name.
	InsecureAnyHost bool

	// MaxBody is the largest body of a request, in bytes. Default: 4 MiB.
	MaxBody int64
	// MaxHeaderLines and MaxHeaderBytes bound the header block of a request. Default: 100 and 64 KiB.
	MaxHeaderLines int
	MaxHeaderBytes int
	// BodyTimeout is how long the body of a request may take to arrive. Default: 30 seconds.
	BodyTimeout time.Duration
	// WriteTimeout is how long a client may take to read what it was sent, one event or one answer, before its
	// connection counts as lost. Default: 30 seconds.
	WriteTimeout time.Duration
	// KeepAlive is the time between two comments on an event stream, which keep proxies from closing it. Default: 15
	// seconds.
	KeepAlive time.Duration

	// MaxListens and MaxListensPerPrincipal bound the open subscriptions, in all and for one authenticated caller.
	// Anonymous callers are bounded in all only. Default: 10,000 and 64.
	MaxListens             int
	MaxListensPerPrincipal int

	// Sessions concerns clients of revisions before 2026-07-28 only.
	Sessions SessionOptions

	// Logger takes what is refused and what fails. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) fillDefaults() {
	setDefault(&o.MaxBody, 4<<20)
	setDefault(&o.MaxHeaderLines, 100)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	setDefault(&o.BodyTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.KeepAlive, 15*time.Second)
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
		positive("MaxBody", o.MaxBody),
		positive("MaxHeaderLines", o.MaxHeaderLines),
		positive("MaxHeaderBytes", o.MaxHeaderBytes),
		positive("BodyTimeout", o.BodyTimeout),
		positive("WriteTimeout", o.WriteTimeout),
		positive("KeepAlive", o.KeepAlive),
		positive("MaxListens", o.MaxListens),
		positive("MaxListensPerPrincipal", o.MaxListensPerPrincipal),
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
		return fmt.Errorf("%s is %v, want a positive value", name, value)
	}
	return nil
}
