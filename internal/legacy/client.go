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
	// maxServerRequests is the number of the server's requests that are worked on at once. Most of them wait for a person, who
	// can look at a few.
	maxServerRequests = 64
	// maxServerRequestBytes bounds the params of them all together: pictures for a model are large, 64 of them need not be.
	maxServerRequestBytes = 64 << 20
	// maxReplies is the number of replies that wait for the server to read, such as those to its pings. What a server does
	// not read, it does not miss.
	maxReplies = 256
	// sendTimeout is how long one reply may take to be sent before the next one gets its turn.
	sendTimeout = 30 * time.Second
	// closeTimeout is how long a function that hasResponseMember the server has to return once its context has ended.
	closeTimeout = 2 * time.Second
)

var (
	// ErrEnded is the error of what goes on when the session ends, and of what is begun later.
	ErrEnded = errors.New("the session has ended")
	// ErrMalformed is within the error for a response that is no result of the protocol. The request may have run.
	ErrMalformed = errors.New("the server's result is malformed")

	errNotOpen = errors.New("the session is not open")
	errOpened  = errors.New("the session was opened before")
)

// A Conn carries the messages of one session. It is safe for concurrent use.
type Conn interface {
	// RoundTrip sends a request, under an id that the link chooses and sets, and gives the response, which may be an error.
	// What the server sent before the response has been received by then. When ctx ends, it tells the server so, unless
	// the request is initialize, and gives context.Cause(ctx).
	RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error)
	// Send sends a notification or a response.
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Done is closed when the link can carry nothing any more.
	Done() <-chan struct{}
	// Close ends the session. It may be called several times.
	Close() error
}

// A ClientConfig says what a [Client] is and does.
type ClientConfig struct {
	// Revision is offered to the server. Default: the newest that has sessions.
	Revision wire.Revision
	// Pinned refuses every other revision that the server may want.
	Pinned bool
	// Info and Capabilities are what the client says of itself, in the modern form: JSON objects, or nil. One with the
	// extension of tasks lets a server of the revision that has tasks make tasks of its questions.
	Info, Capabilities json.RawMessage
	// Answer hasResponseMember a request of the server as an input request of the modern era is answered. It is only asked what the
	// capabilities promise. Its context ends when the server cancels the request and when the session ends.
	Answer func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error)
	// Notify takes notifications that belong to no request, such as log messages. It must not block. It may be called
	// from several goroutines.
	Notify func(ctx context.Context, method string, params json.RawMessage)
	// Cancelled makes the cause of a context whose request the server has cancelled. Default: an error that gives the
	// reason.
	Cancelled func(reason string) error
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// A Client is the client's end of one session: it makes the server look like one of the modern era. It is safe for
// concurrent use.
type Client struct {
	cfg      ClientConfig
	log      *slog.Logger
	offered  wire.Revision
	declared json.RawMessage // capabilities, as the server is told

	calls          peer.Table             // the server's requests that are worked on
	requestBytes   atomic.Int64           // the bytes of their params, and of those of tasks at work
	tasks          clientTasks            // that the server has made of its questions
	replies        chan *jsonrpc.Message  // to what took no work
	droppedReplies atomic.Int64           // replies that were dropped since that was logged
	level          atomic.Pointer[string] // that the server was told last; nil before
	levelLock      chan struct{}          // holds a token while it is told another one

	ctx    context.Context // of everything that is not a request of the caller: ends with the session
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	// The fields below are set before opened is closed, and never changed.
	opened       chan struct{}
	rev          wire.Revision
	capabilities json.RawMessage   // of the server, in the modern form
	lacks        map[string]string // of methods: what the server would have to declare
	server       capabilitySet
	discovered   json.RawMessage

	mu           sync.Mutex // guards the fields below
	conn         Conn       // nil before Open; not changed after
	closed       bool
	progressing  map[string]*clientProgress // by progress token
	listeners    map[*listener]struct{}
	listens      int                              // that were begun: the last one's number
	resources    map[string]*resourceSubscription // by URI
	elicitations map[string]chan struct{}
}

// NewClient returns a client that is to be opened. Whoever has one closes it.
func NewClient(cfg ClientConfig) *Client {
	c := &Client{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default()), offered: cmp.Or(cfg.Revision, wire.LatestLegacy()),
		calls:   peer.Table{MaxCalls: maxServerRequests},
		replies: make(chan *jsonrpc.Message, maxReplies), levelLock: make(chan struct{}, 1), opened: make(chan struct{}),
		progressing: map[string]*clientProgress{}, listeners: map[*listener]struct{}{}, resources: map[string]*resourceSubscription{},
		elicitations: map[string]chan struct{}{},
	}
	c.declared = sessionCapabilities(c.offered, cfg.Capabilities)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Revision is the revision that the session has settled on; zero before that.
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

// RootsChanged tells the server that the client's roots have changed.
//
// Spec: client/roots#root-list-changes
func (c *Client) RootsChanged(ctx context.Context) error {
	switch {
	case !c.isOpen():
		return errNotOpen
	case !hasCapability(c.declared, "roots"):
		return errors.New("the server was not told of roots")
	}
	return c.conn.Send(ctx, jsonrpc.NewNotification(wire.NotificationRootsListChanged, nil))
}

// Close ends the session and closes its link. It waits a little for functions that answer the server, and may be called
// several times.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true // from here on nothing is started
	link := c.conn
	c.mu.Unlock()
	c.end()
	var err error
	if link != nil {
		err = link.Close()
	}
	idle := make(chan struct{})
	go func() {
		c.work.Wait()
		close(idle)
	}()
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
		c.log.Warn("mcp: a function that answers the server does not return; it is left behind")
	}
	return err
}

// end ends what the session has going.
func (c *Client) end() {
	c.calls.Close(ErrEnded)
	c.tasks.close()
	c.cancel(ErrEnded)
}

// attach takes the link, and begins to reply: a server may ping before it has answered initialize.
func (c *Client) attach(link Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrEnded
	case c.conn != nil:
		return errOpened
	}
	c.conn = link
	c.work.Go(c.sendReplies)
	c.work.Go(func() {
		select {
		case <-link.Done():
			c.end()
		case <-c.ctx.Done():
		}
	})
	return nil
}

// start runs f on a goroutine that Close waits for. It reports false, and does nothing, when the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}
