package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Defaults of ClientOptions.
const (
	// defaultTimeout is longer than what most tools take, and short enough for someone who waits for a server that is
	// stuck.
	defaultTimeout = 60 * time.Second
	// defaultMaxTimeout bounds requests that make progress for ever.
	defaultMaxTimeout = time.Hour
	// defaultProbeTimeout is enough for a server that has to be fetched before it starts. One that does not answer by
	// then is taken for an older one that ignores what it does not know.
	defaultProbeTimeout = 10 * time.Second
	// logPatience is how long ClientOptions.Log has to take the messages that wait when the client closes.
	logPatience = time.Second
)

// ClientOptions configures a [Client]. The zero value, or nil, is a client that can be asked nothing. Its functions are
// called for several requests at the same time; where one is not, it says so.
type ClientOptions struct {
	// Info is what the client calls itself. Default: the main module of the program.
	Info Implementation

	// Elicit asks the user to fill in a form. Setting it declares the capability. The content of an accepted form is
	// completed with the defaults of the form and checked against its schema before the server gets it.
	Elicit func(ctx context.Context, p *ElicitParams) (*ElicitResult, error)
	// ElicitURL asks the user to visit a page, p.URL: it shows the whole URL, asks for consent, and opens the page where
	// neither this program nor a model sees what is typed there. The URL is https, or http on this machine.
	ElicitURL func(ctx context.Context, p *ElicitParams) (*ElicitResult, error)
	// Sample has a model continue a conversation, with the user's consent.
	Sample func(ctx context.Context, p *SampleParams) (*SampleResult, error)
	// SampleTools says that Sample lets the model use the tools of its params.
	SampleTools bool
	// Roots tells the folders to work in. See [Client.RootsChanged].
	Roots func(ctx context.Context) ([]Root, error)
	// Extensions maps the id of each supported extension to its settings.
	Extensions map[string]json.RawMessage

	// Log takes the log messages of the server, one after the other, on a goroutine of the client's. The last ones of a
	// request may come after it has returned, none after Close.
	Log func(ctx context.Context, m *LogMessage)
	// LogLevel is the level from which on the server is asked for log messages. Default: LevelInfo if Log is set, else
	// none.
	LogLevel LogLevel

	// Revision pins the revision of the protocol; a server that does not speak it is refused. Default: the newest that
	// both sides speak.
	Revision string
	// Timeout is how long the server may be silent before a request ends with [ErrTimeout]. Progress starts it anew, and
	// it does not run while the server waits for an answer of the user. Default: 60 seconds.
	Timeout time.Duration
	// MaxTimeout is how long a request may take in all. Default: one hour.
	MaxTimeout time.Duration
	// ProbeTimeout is how long the server may take to say whether it speaks a modern revision. Default: 10 seconds.
	ProbeTimeout time.Duration
	// InputTimeout is how long all questions of one request may take to be answered. Default: 10 minutes.
	InputTimeout time.Duration
	// MaxRounds is how many times one request may ask; negative is never. Default: 16.
	MaxRounds int

	// Middleware wraps every request; the first is the outermost. It sees each round of a request that asks.
	Middleware []Middleware
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// withDefaults returns the options with every default filled in.
func (o *ClientOptions) withDefaults() ClientOptions {
	var full ClientOptions
	if o != nil {
		full = *o
	}
	if full.Info.Name == "" {
		full.Info = programInfo()
	}
	if full.Log != nil {
		full.LogLevel = cmp.Or(full.LogLevel, LevelInfo)
	}
	full.Timeout = cmp.Or(full.Timeout, defaultTimeout)
	full.MaxTimeout = cmp.Or(full.MaxTimeout, max(defaultMaxTimeout, full.Timeout))
	full.ProbeTimeout = cmp.Or(full.ProbeTimeout, defaultProbeTimeout)
	full.InputTimeout = cmp.Or(full.InputTimeout, defaultInputTimeout)
	full.MaxRounds = cmp.Or(full.MaxRounds, defaultMaxRounds)
	full.Logger = cmp.Or(full.Logger, slog.Default())
	return full
}

// programInfo describes the program by how it was built.
func programInfo() Implementation {
	info := Implementation{Name: "mcp-client", Version: "unknown"}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Path != "" {
		info = Implementation{Name: build.Main.Path, Version: cmp.Or(build.Main.Version, "unknown")}
	}
	return info
}

// capabilities derives what the client can do from the functions that it was given.
func (o *ClientOptions) capabilities() ClientCapabilities {
	c := ClientCapabilities{Extensions: o.Extensions}
	yes := &struct{}{}
	if o.Elicit != nil || o.ElicitURL != nil {
		c.Elicitation = &ElicitationCapability{}
	}
	if o.Elicit != nil {
		c.Elicitation.Form = yes
	}
	if o.ElicitURL != nil {
		c.Elicitation.URL = yes
	}
	if o.Sample != nil {
		c.Sampling = &SamplingCapability{}
		if o.SampleTools {
			c.Sampling.Tools = yes
		}
	}
	if o.Roots != nil {
		c.Roots = yes
	}
	return c
}

// A Client is one connection to one server, made by [Connect]. It speaks whichever revision the server speaks, and looks
// the same for all of them. All methods are safe for concurrent use.
//
// Errors of requests are of two kinds: an [*Error] is what the server says, a [*TransportError] is that there is no
// usable answer, and says whether the request may have run. When a function of [ClientOptions] does not answer a question
// of the server, the request ends with what the function returned within its error.
type Client struct {
	transport Transport
	opts      ClientOptions
	caps      ClientCapabilities
	info      json.RawMessage // of opts.Info and caps, encoded
	declared  json.RawMessage
	handler   Handler // middleware, then the server

	ctx    context.Context // of what the client does by itself
	cancel context.CancelCauseFunc

	connecting chan struct{} // holds a token while a connection is made
	connection atomic.Pointer[connection]

	tokens   atomic.Int64 // of progress
	requests requestSet
	logs     inbox
	known    toolIndex
	cache    resultCache
}

func newClient(t Transport, opts *ClientOptions) (*Client, error) {
	c := &Client{transport: t, opts: opts.withDefaults(), connecting: make(chan struct{}, 1)}
	c.caps = c.opts.capabilities()
	var err error
	if c.info, err = jsonv2.Marshal(c.opts.Info, deterministic); err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions.Info: %w", err)
	}
	if c.declared, err = jsonv2.Marshal(c.caps, deterministic); err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions.Extensions: %w", err)
	}
	c.handler = chain(HandlerFunc(c.exchange), c.opts.Middleware)
	c.logs = inbox{log: c.opts.Logger, handle: c.logged}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

type clientKey struct{}

// ClientFrom returns the client whose request ctx belongs to, within [ClientOptions.Middleware]; nil elsewhere. It is for
// middleware that has requests of its own to send, which pass all middleware in their turn.
func ClientFrom(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

// Close ends the connection: requests in progress fail with [ErrClosed], a session is ended at the server, a child
// process is stopped. It returns within bounded time, which for a child that refuses to end is 10.5 seconds, and may be
// called several times.
func (c *Client) Close() error {
	c.cancel(ErrClosed)
	c.requests.close()
	if conn := c.connection.Load(); conn != nil {
		conn.end()
	}
	err := c.transport.Close()
	ctx, cancel := context.WithTimeout(context.Background(), logPatience)
	defer cancel()
	c.logs.drain(ctx)
	c.logs.close()
	return err
}

// Revision is the revision of the protocol that is spoken with the server, such as "2026-07-28".
func (c *Client) Revision() string { return c.connection.Load().revision.String() }

// Server is what the server calls itself; the zero value if it does not say. It is its own word, fit for display only.
func (c *Client) Server() Implementation { return c.connection.Load().server }

// Capabilities is what the server offers, by its own declaration.
func (c *Client) Capabilities() ServerCapabilities {
	return c.connection.Load().discovered.Capabilities
}

// Instructions is what the server tells the model about itself. It is text of a stranger.
func (c *Client) Instructions() string { return c.connection.Load().discovered.Instructions }

// Versions are the revisions that the server says it speaks; of a server from before 2026-07-28 the one that it settled
// on.
func (c *Client) Versions() []string {
	return slices.Clone(c.connection.Load().discovered.SupportedVersions)
}

// Request sends a request of any method and gives its whole result. params encodes to a JSON object, or is nil; its
// `_meta` is made by the client, see [CallOptions.Meta]. Questions of the server are answered as in every request.
func (c *Client) Request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	members, err := appendParams(nil, params)
	if err != nil {
		return nil, err
	}
	raw, err := c.do(ctx, &ask{method: method, members: members})
	if m, ok := wire.Latest().Method(method); ok && m.Cacheable {
		raw = bytes.Clone(raw) // the client may keep it
	}
	return json.RawMessage(raw), err
}

// appendParams appends the members of params, each behind a comma.
func appendParams(dst []byte, params any) ([]byte, error) {
	if params == nil {
		return dst, nil
	}
	raw, err := jsonv2.Marshal(params, deterministic)
	if err != nil {
		return nil, fmt.Errorf("mcp: encode params: %w", err)
	}
	if jsonscan.Kind(raw) != '{' {
		return nil, fmt.Errorf("mcp: params encode to %.20q, want an object", raw)
	}
	for key, value := range jsonscan.Members(raw) {
		if string(key) == "_meta" {
			return nil, errors.New("mcp: params hold _meta: use CallOptions.Meta")
		}
		dst = append(jsonscan.AppendQuote(append(dst, ','), string(key)), ':')
		dst = append(dst, value...)
	}
	return dst, nil
}
