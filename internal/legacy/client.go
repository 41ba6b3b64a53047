package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxServerRequests limits the server's requests that are served at once. Most of them wait for
	// a user.
	maxServerRequests = 64
	// maxServerRequestBytes limits the size of all their params together. A few may hold images.
	maxServerRequestBytes = 64 << 20
	// maxReplies limits the replies that wait to be sent, such as responses to pings. Further
	// replies are dropped if the server does not read.
	maxReplies = 256
	// sendTimeout is how long sending a reply may block the next.
	sendTimeout = 30 * time.Second
	// closeTimeout is how long Close waits for a call of [ClientConfig.Answer] to return.
	closeTimeout = 2 * time.Second
)

var (
	// ErrEnded is returned for requests in progress when the session ends, and for later requests.
	ErrEnded = errors.New("the session has ended")
	// ErrMalformed is wrapped in the error for a response that is not a valid result. The server
	// may have executed the request.
	ErrMalformed = errors.New("the server's result is malformed")

	errNotOpen = errors.New("the session is not open")
	errOpened  = errors.New("the session was opened before")
)

// A Conn carries the messages of a session. It is safe for concurrent use.
type Conn interface {
	// RoundTrip sends a request, whose id it sets, and returns the response, which may be an error.
	// Messages that the server sent before the response were received by then. When ctx ends,
	// RoundTrip cancels the request at the server, unless it is initialize, and returns
	// context.Cause(ctx).
	RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error)
	// Send sends a notification or a response.
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Done returns a channel that is closed when the connection ended.
	Done() <-chan struct{}
	// Close closes the connection and ends the session. It may be called several times.
	Close() error
}

// A ClientConfig configures a [Client].
type ClientConfig struct {
	// Revision is the revision that initialize requests. Default: the newest with sessions.
	Revision wire.Revision
	// Pinned rejects any other revision that the server chooses.
	Pinned bool
	// Info and Capabilities describe the client in the modern form: JSON objects, or nil. With the
	// tasks extension, a server of 2025-11-25 may create tasks for its requests.
	Info, Capabilities json.RawMessage
	// Answer returns the result of a request of the server, as the response to an input request of
	// the modern era. It is called only for declared capabilities. Its context ends when the server
	// cancels the request, and with the session.
	Answer func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error)
	// Notify receives notifications that belong to no request, such as log messages. It must not
	// block. It may be called from several goroutines.
	Notify func(ctx context.Context, method string, params json.RawMessage)
	// Cancelled returns the cause of a context whose request the server cancelled. Default: an
	// error with the reason.
	Cancelled func(reason string) error
	// Logger receives failures. Default: slog.Default().
	Logger *slog.Logger
}

// A Client is the client's end of a session. It makes the server look like a modern server. It is
// safe for concurrent use.
type Client struct {
	cfg      ClientConfig
	log      *slog.Logger
	offered  wire.Revision
	declared json.RawMessage // capabilities, as sent with initialize

	calls          peer.Table             // the server's requests in progress
	requestBytes   atomic.Int64           // the size of the params of these requests and of running tasks
	tasks          clientTasks            // created by the server for its requests
	replies        chan *jsonrpc.Message  // to be sent by sendReplies
	droppedReplies atomic.Int64           // since the last log message about them
	requests       atomic.Int64           // of the server so far
	level          atomic.Pointer[string] // the last level sent to the server; may be nil
	levels         levelCounts            // of the requests in progress
	levelLock      chan struct{}          // holds a token while the level is set

	ctx    context.Context // of all work that no caller waits for; ends with the session
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	// The fields below are set before opened is closed, and never changed afterwards.
	opened       chan struct{}
	rev          wire.Revision
	capabilities json.RawMessage   // of the server, in the modern form
	lacks        map[string]string // the missing capability, by method
	server       capabilitySet
	discovered   json.RawMessage

	mu           sync.Mutex // guards the fields below
	conn         Conn       // nil before Open; not changed afterwards
	closed       bool
	progressing  map[string]*clientProgress // by progress token
	listeners    map[*listener]struct{}
	listens      int                              // the number of the last listener
	resources    map[string]*resourceSubscription // by URI
	elicitations map[string]chan struct{}
}

// NewClient returns a client for [Client.Open]. The caller must close it.
func NewClient(cfg ClientConfig) *Client {
	c := &Client{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default()), offered: cmp.Or(cfg.Revision, wire.LatestLegacy()),
		calls:   peer.Table{MaxCalls: maxServerRequests},
		replies: make(chan *jsonrpc.Message, maxReplies), levelLock: make(chan struct{}, 1),
		opened:      make(chan struct{}),
		progressing: map[string]*clientProgress{}, listeners: map[*listener]struct{}{},
		resources:    map[string]*resourceSubscription{},
		elicitations: map[string]chan struct{}{},
	}
	c.declared = sessionCapabilities(c.offered, cfg.Capabilities)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Revision returns the negotiated revision, or zero before [Client.Open].
func (c *Client) Revision() wire.Revision {
	if !c.isOpen() {
		return 0
	}
	return c.rev
}

func (c *Client) isOpen() bool {
	select {
	case <-c.opened:
		return true
	default:
		return false
	}
}

// RootsChanged notifies the server that the client's roots changed.
//
// Spec: client/roots#root-list-changes
func (c *Client) RootsChanged(ctx context.Context) error {
	switch {
	case !c.isOpen():
		return errNotOpen
	case !hasCapability(c.declared, "roots"):
		return errors.New("this client did not declare the capability roots")
	}
	return c.conn.Send(ctx, &jsonrpc.Message{Method: wire.NotificationRootsListChanged})
}

// Close ends the session and closes its connection. It waits up to closeTimeout for calls of
// [ClientConfig.Answer]. It may be called several times.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true // no goroutine is started any more
	conn := c.conn
	c.mu.Unlock()
	c.end()
	var err error
	if conn != nil {
		err = conn.Close()
	}
	idle := make(chan struct{})
	go func() {
		c.work.Wait()
		close(idle)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		c.log.Warn("mcp: a request handler does not return: its goroutine is abandoned")
	}
	return err
}

func (c *Client) end() {
	c.calls.Close(ErrEnded)
	c.tasks.close()
	c.cancel(ErrEnded)
}

// attach sets the connection and starts to send replies: a server may ping before it responds to
// initialize.
func (c *Client) attach(conn Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrEnded
	case c.conn != nil:
		return errOpened
	}
	c.conn = conn
	c.work.Go(c.sendReplies)
	c.work.Go(func() {
		select {
		case <-conn.Done():
			c.end()
		case <-c.ctx.Done():
		}
	})
	return nil
}

// start runs f on a goroutine that Close waits for. If the client is closed, it returns at once and
// returns false.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}
