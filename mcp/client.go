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
	"time"

	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// defaultTimeout is longer than most tools run, and short enough for a user who waits for a
	// server that hangs.
	defaultTimeout = 60 * time.Second
	// defaultMaxTimeout bounds requests that never stop making progress.
	defaultMaxTimeout = time.Hour
	// defaultProbeTimeout suffices for a server that is downloaded before it starts. A server that
	// responds later counts as a server of an earlier revision that ignores unknown requests.
	defaultProbeTimeout = 10 * time.Second
	// logTimeout is how long Close waits for ClientOptions.Log to handle the queued messages.
	logTimeout = time.Second
)

// ClientOptions configures a [Client]. The zero value is a client without optional capabilities.
// Its functions may be called concurrently unless their documentation says otherwise.
type ClientOptions struct {
	// Info describes the client to servers. Default: the main module of the program.
	Info Implementation

	// Elicit asks the user to fill in a form. The result contains the user's action and, for
	// [ElicitAccept], the fields of the form, such as {"value":true} for an Ask[bool]. The client
	// adds defaults to the fields and validates them before it sends them to the server. Elicit
	// must return an error only if it cannot ask the user: the error fails the request, see
	// [Client]. Invalid fields fail the request in the same way, so validate in Elicit to ask the
	// user again. Setting Elicit declares the capability elicitation.form.
	Elicit func(ctx context.Context, p *ElicitRequestParams) (*ElicitResult, error)
	// ElicitURL asks the user to visit the page p.URL. It must show the whole URL, ask for consent,
	// and open the page where neither this program nor a model can read the input. The URL is
	// https, or http on this machine. Setting ElicitURL declares the capability elicitation.url.
	ElicitURL func(ctx context.Context, p *ElicitRequestParams) (*ElicitResult, error)
	// ElicitationsPerMinute limits the questions for Elicit and ElicitURL that the server may send
	// in a minute, and at once; a negative value refuses all. Further questions do not reach these
	// functions: in sessions the server receives an error with [CodeBusy]; since 2026-07-28 the
	// request that they belong to fails. Default: 64, which is also the limit of questions in one
	// round of a request.
	ElicitationsPerMinute int
	// ElicitationComplete is called when a server of 2025-11-25 announces that the user completed a
	// page that ElicitURL was called for. id is [ElicitRequestParams.ElicitationID]. Servers may
	// omit the announcement. The function is called like Log.
	ElicitationComplete func(ctx context.Context, id string)
	// Sample generates the next message of a conversation with a model, with the user's consent. It
	// is called with valid params only. Setting it declares the capability sampling.
	Sample func(ctx context.Context, p *CreateMessageParams) (*CreateMessageResult, error)
	// SampleTools declares the capability sampling.tools: Sample supports the tools of its params.
	SampleTools bool
	// SampleContext declares sampling.context: Sample supports the deprecated IncludeContext.
	SampleContext bool
	// Roots returns the directories that the server may work in; see [Client.RootsChanged]. Their
	// URIs must be file URIs without the segments "." and "..": another URI is an error of Roots,
	// and the client sends no root. Setting Roots declares the capability roots.
	Roots func(ctx context.Context) ([]Root, error)
	// ForwardInput passes the input requests of the server to the clients of [Forward]. The
	// functions above answer other input requests. Servers since 2026-07-28 receive the
	// capabilities of each client, older servers ForwardCapabilities. For a client that lacks a
	// capability, older servers receive the action cancel, no roots, or the error that the user
	// rejected the sampling.
	ForwardInput bool
	// ForwardCapabilities contains the elicitation, roots and sampling that ForwardInput declares
	// to servers of revisions before 2026-07-28; its other members are ignored. Default: all three.
	ForwardCapabilities *ClientCapabilities
	// Extensions declares the supported extensions: it maps their identifiers to settings.
	Extensions map[string]json.RawMessage
	// Experimental is sent as the capability of this name. Its values encode to JSON objects.
	Experimental map[string]any

	// Log receives the log messages of the server in sequence, on a goroutine of the client. The
	// last messages of a request may arrive after it returned. Log is not called after Close.
	Log func(ctx context.Context, m *LoggingMessage)
	// LogLevel is the lowest level of the log messages that are requested. Default: "info" if
	// Log is set, otherwise no messages are requested.
	LogLevel LoggingLevel

	// Revision is the only protocol revision to use; [Connect] fails if the server does not support
	// it. Default: the latest revision that both sides support.
	Revision string
	// Timeout is how long a request waits for the server before it fails with [ErrTimeout].
	// Progress restarts it. Default: 60 seconds.
	Timeout time.Duration
	// MaxTimeout is how long a request may take in total, even with progress. Default: one hour.
	// The time that functions like Elicit and logins (see [driver.PauseTimeouts]) take is not part of
	// Timeout and MaxTimeout.
	MaxTimeout time.Duration
	// ProbeTimeout is how long the server may take to respond to server/discover. Default: 10
	// seconds, or 3 minutes for the first response of a server that a package runner such as npx
	// starts.
	ProbeTimeout time.Duration
	// KeepAlive is the interval of pings in sessions (revisions before 2026-07-28). A session whose
	// server misses three pings in sequence is logged and ended; the next request opens another
	// session. Default: no pings. [ServeOptions.PingInterval] is for servers.
	KeepAlive time.Duration
	// InputTimeout is how long Elicit, ElicitURL, Sample and Roots may take for one request of the
	// client, in total. In sessions, which do not relate questions to requests, it limits each
	// question. The contexts of the functions end then; an answer of a function that ignores its
	// context is still used. Default: 10 minutes.
	InputTimeout time.Duration
	// MaxRounds is how many times one request may require input; negative means never. In sessions
	// the server limits its questions. Default: 16.
	MaxRounds int

	// Middleware wraps every request; the first middleware is the outermost. It is called again
	// each time a request is sent again with input.
	Middleware []Middleware
	// Observer receives the begin and the end of every request that is sent, outside of Middleware.
	// If it is a [driver.SessionObserver], it receives the sessions with servers. Default: none.
	Observer Observer
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

func (o *ClientOptions) withDefaults() ClientOptions {
	var full ClientOptions
	if o != nil {
		full = *o
	}
	if build, ok := debug.ReadBuildInfo(); full.Info.Name == "" {
		full.Info = Implementation{Name: "mcp-client", Version: "unknown"}
		if ok && build.Main.Path != "" {
			full.Info = Implementation{Name: build.Main.Path, Version: cmp.Or(build.Main.Version, "unknown")}
		}
	}
	if full.Log != nil {
		full.LogLevel = cmp.Or(full.LogLevel, "info")
	}
	full.Timeout = cmp.Or(full.Timeout, defaultTimeout)
	full.MaxTimeout = cmp.Or(full.MaxTimeout, max(defaultMaxTimeout, full.Timeout))
	full.ProbeTimeout = cmp.Or(full.ProbeTimeout, defaultProbeTimeout)
	full.InputTimeout = cmp.Or(full.InputTimeout, defaultInputTimeout)
	full.MaxRounds = cmp.Or(full.MaxRounds, defaultMaxRounds)
	full.ElicitationsPerMinute = cmp.Or(full.ElicitationsPerMinute, maxInputRequests)
	full.Logger = cmp.Or(full.Logger, slog.Default())
	return full
}

func (o *ClientOptions) capabilities() ClientCapabilities {
	c := ClientCapabilities{Extensions: o.Extensions, Experimental: o.Experimental}
	yes := &struct{}{}
	if f := o.ForwardCapabilities; o.ForwardInput && f != nil {
		c.Elicitation, c.Roots, c.Sampling = f.Elicitation, f.Roots, f.Sampling
		return c
	}
	if o.ForwardInput {
		c.Elicitation, c.Roots = &ElicitationCapability{Form: yes, URL: yes}, yes
		c.Sampling = &SamplingCapability{Tools: yes}
		return c
	}
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
		if o.SampleContext {
			c.Sampling.Context = yes
		}
	}
	if o.Roots != nil {
		c.Roots = yes
	}
	return c
}

// A Client is a connection to a server, made by [Connect]. It uses the revision that the server
// supports; its methods are the same for all revisions. They are safe for concurrent use.
//
// A request fails with the [*Error] of the server's response, or with a [*TransportError] if there
// is no valid response, which reports whether the request may have run. An HTTP status such as 403
// is a TransportError that wraps the Error of its body, if any: test for the TransportError first.
// Arguments that do not encode to a JSON object fail with another error before anything is sent. If
// a function such as [ClientOptions].Elicit fails, the request that it was called for fails with an
// error that wraps the function's error. Sessions (revisions before 2026-07-28) do not relate a
// question to a request: the error is logged, and the server receives "internal error" and decides
// how the request ends. A server of this package treats it as a dismissal by the user.
type Client struct {
	opts      ClientOptions
	identity  identity
	connector connector
	handler   Handler // middleware, then the connector

	ctx    context.Context // of the client's own work
	cancel context.CancelCauseFunc

	requests  requestSet
	logs      peer.Inbox
	known     toolIndex
	cache     resultCache
	forwards  forward.Table
	questions questions
}

func newClient(t Transport, opts *ClientOptions) (*Client, error) {
	c := &Client{opts: opts.withDefaults()}
	err := checkObjects(c.opts.Experimental)
	if err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions.Experimental: %w", err)
	}
	if c.identity.info, err = schema.Encode(c.opts.Info); err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions.Info: %w", err)
	}
	if c.identity.declared, err = schema.Encode(c.opts.capabilities()); err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions: invalid Extensions: %w", err)
	}
	via, ok := t.(driver.Carrier)
	if !ok {
		via = sentOnStream{}
	}
	c.identity.opts, c.identity.via = &c.opts, via
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	q := &c.questions
	q.opts, q.via, q.connection = &c.opts, via, &c.connector.connection
	q.requests, q.forwards = &c.requests, &c.forwards
	c.forwards.Default, c.forwards.Observe, c.forwards.Logger = q.answerDefault, q.answerBy, c.opts.Logger
	n := &c.connector
	n.transport, n.opts, n.identity, n.ctx, n.connecting = t, &c.opts, &c.identity, c.ctx, make(chan struct{}, 1)
	n.answer, n.unrouted, n.replaced = q.answerDirect, c.unrouted, c.cache.clear
	c.handler = chain(HandlerFunc(n.exchange), c.opts.Middleware)
	c.logs = peer.Inbox{Log: c.opts.Logger, Receiver: c.guarded(c.logged)}
	return c, nil
}

type clientKey struct{}

// ClientFrom returns the client whose request ctx belongs to, or nil. It is for
// [ClientOptions.Middleware] that sends further requests, which pass through all middleware, too.
func ClientFrom(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

// Close closes the connection: requests in progress fail with [ErrClosed], a session is ended at
// the server, a child process is stopped. It returns within bounded time, at most 10.5 seconds for
// a child process that does not exit. It may be called several times.
func (c *Client) Close() error {
	c.cancel(ErrClosed)
	c.requests.close()
	if conn := c.connector.connection.Load(); conn != nil {
		conn.end()
	}
	err := c.connector.transport.Close()
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	c.logs.Drain(ctx)
	c.logs.Close()
	return err
}

// Revision returns the protocol revision of the connection, such as "2026-07-28".
func (c *Client) Revision() string { return c.connector.connection.Load().revision.String() }

// ServerInfo returns the server's description of itself, or the zero value. Use it for display
// only: it is not verified.
func (c *Client) ServerInfo() Implementation { return c.connector.connection.Load().server }

// Capabilities returns the capabilities that the server declared.
func (c *Client) Capabilities() ServerCapabilities {
	return c.connector.connection.Load().discovered.Capabilities
}

// Instructions returns the server's instructions for the model. The text comes from the server and
// must not be trusted.
func (c *Client) Instructions() string { return c.connector.connection.Load().discovered.Instructions }

// SupportedRevisions returns the revisions that the server supports. On a connection of a revision
// before 2026-07-28, it returns only the negotiated revision.
func (c *Client) SupportedRevisions() []string {
	return slices.Clone(c.connector.connection.Load().discovered.SupportedVersions)
}

// Do sends a request of any method and returns its result as JSON. params must encode to a JSON
// object without `_meta`, for which see [CallOptions.Meta], or be nil. The client handles input
// requests of the server as for other methods.
func (c *Client) Do(ctx context.Context, method string, params any) (json.RawMessage, error) {
	members, err := appendParams(nil, params)
	if err != nil {
		return nil, err
	}
	raw, err := c.do(ctx, &clientRequest{method: method, members: members})
	if m, ok := wire.Latest().Method(method); ok && m.Cacheable {
		raw = bytes.Clone(raw) // the cache may hold it
	}
	return json.RawMessage(raw), err
}

// appendParams appends the members of params, each after a comma.
func appendParams(dst []byte, params any) ([]byte, error) {
	if params == nil {
		return dst, nil
	}
	raw, err := encodeObject(params)
	if err != nil {
		return nil, fmt.Errorf("mcp: invalid params: %w", err)
	}
	if _, ok := jsonscan.Get(raw, "_meta"); ok {
		return nil, errors.New("mcp: invalid params: _meta is not allowed, use CallOptions.Meta")
	}
	return jsonscan.AppendMembers(dst, raw, nil), nil
}
