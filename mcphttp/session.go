package mcphttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// SessionOptions configures the sessions that clients of revisions before 2026-07-28 open with
// initialize. The zero value is right for most servers.
type SessionOptions struct {
	// Max and MaxPerPrincipal limit the sessions in total and for each principal. Anonymous callers
	// together get at most half of Max; see [Options.AnonymousKey]. If there is no room for
	// another session, the anonymous session that was idle for the longest time ends. Defaults:
	// 10,000 and 64.
	Max             int
	MaxPerPrincipal int
	// IdleTimeout is how long a session lasts without a request or an open stream. A request that
	// waits for a response of its client keeps the session for 10 minutes and then fails. A request
	// that waits for the result of a task keeps it until the task is over or the client has been
	// disconnected for 10 minutes. Default: 30 minutes.
	IdleTimeout time.Duration
	// InitTimeout is the same for a session that was opened and not used since. An initialize
	// request that is not answered within it fails. Default: 30 seconds.
	InitTimeout time.Duration
	// MaxInFlight is how many requests of a session are processed at once. Default: 256.
	MaxInFlight int
	// PingInterval is the time between two pings to a client with an open stream, which is the GET
	// stream of its session. The session ends if three in sequence receive no response. Default: no
	// pings; a client that has vanished keeps its session until the network reports a lost
	// connection.
	PingInterval time.Duration
	// Stateless serves these clients without sessions, so that replicas need no state of clients:
	// each POST is served on its own, in the revision of its MCP-Protocol-Version header or
	// 2025-03-26. GET, DELETE and HTTP+SSE are refused with status 405. The server cannot ask the
	// client for input ([errors.ErrUnsupported]), sends no log messages, notifies of no changes and
	// ends a call whose client disconnects. Max and MaxPerPrincipal limit the requests in progress.
	// Begin and End are not called.
	Stateless bool
	// NoHTTPSSE refuses the clients of HTTP+SSE, the transport of 2024-11-05, with status 405.
	NoHTTPSSE bool
	// NoGET refuses every GET with status 405: there are no streams for notifications that belong
	// to no request, no resumed streams and no HTTP+SSE.
	NoGET bool
	// NoDELETE refuses every DELETE with status 405: clients cannot end their session.
	NoDELETE bool

	// Begin is called when a session has been initialized, and End when it ends, with the reason.
	// The id is a secret. [mcp.PrincipalFrom](ctx) is the caller. They must be fast and safe for
	// concurrent use; the client waits for Begin.
	Begin func(ctx context.Context, id string)
	End   func(id string, cause error)

	// Store shares the sessions with other processes that serve an equal server, so that each of them
	// can serve each request and Shutdown ends no session. It stores digests of ids and principals,
	// the declarations of the client and its subscriptions. A request fails with status 503 if the store
	// fails and this process does not know the session. Max and MaxPerPrincipal apply to the sessions
	// of each process, and Begin and End to each process: Begin is also called when this process first
	// serves a session of the store, and End when it ends, was idle here, or this process shuts down;
	// the cause is [replica.ErrElsewhere] if the session may continue at other processes.
	// HTTP+SSE needs a Bus to use other processes. The operations of the store must bound their time.
	// Default: sessions belong to this process.
	Store replica.SessionStore
	// Bus carries a response of a client to the process that waits for it, and a cancellation to the
	// process that serves the request, if they arrive at another process. Responses that get lost on
	// the way are sent again. A client that resumes the stream of a call at another process follows the
	// call there, if the processes also share Events; a call whose process is gone fails after 15 seconds
	// with an error that it may have run. A message of HTTP+SSE at another process than its stream is
	// passed to that process, and served with the principal, the context values and the headers of the
	// GET, except Accept, Content-Type, MCP-Protocol-Version and the trace context. If the handler is a
	// [*mcp.Server], the Bus also carries announced changes of lists and resources to the subscriptions
	// at other processes, of every revision. It needs a Store. Default: responses, cancellations, events
	// and changes reach no other process.
	Bus replica.Bus
	// Scope separates the sessions of handlers that share a Store: only handlers with an equal Scope
	// serve a session. Handlers whose lists or permissions differ must have different scopes.
	Scope string
	// Events stores the events of streams, for clients whose connection broke. Default: a store in
	// memory of at most 256 MiB, which keeps the last 10 minutes, 8 MiB of each session and 64 MiB
	// of each principal.
	Events EventStore
}

func (o *SessionOptions) fillDefaults() {
	setDefault(&o.Max, 10_000)
	setDefault(&o.MaxPerPrincipal, 64)
	setDefault(&o.IdleTimeout, 30*time.Minute)
	setDefault(&o.InitTimeout, 30*time.Second)
	setDefault(&o.MaxInFlight, 256)
	if o.Events == nil {
		o.Events = newMemoryEvents()
	}
}

// key returns the key of a session's record, which does not reveal the id.
func (o *SessionOptions) key(id string) string { return digest(o.Scope + id) }

func (o *SessionOptions) validate() error {
	if o.Bus != nil && o.Store == nil {
		return errors.New("invalid Sessions.Bus: needs a Store")
	}
	return errors.Join(
		positive("Sessions.Max", o.Max), positive("Sessions.MaxPerPrincipal", o.MaxPerPrincipal),
		positive("Sessions.IdleTimeout", o.IdleTimeout), positive("Sessions.InitTimeout", o.InitTimeout),
		positive("Sessions.MaxInFlight", o.MaxInFlight), positive("Sessions.PingInterval", o.PingInterval),
	)
}

// A session begins when a client sends initialize. Only the principal that opened it can use it.
type session struct {
	id     string
	caller caller        // for limits
	digest string        // of principal, for the event store
	queue  *messageQueue // of the stream of an HTTP+SSE session; nil on Streamable HTTP

	// The lock of the table guards these.
	users   int32         // HTTP requests that are being served for it
	used    bool          // a request came after initialize
	touched time.Duration // time of the last release, since the table was made
	list    *sessionList  // of idle sessions, with this one; may be nil
	prev    *session      // in the list
	next    *session

	shared *sharedState // nil without a SessionOptions.Store, and for HTTP+SSE

	observed func(cause error) // reports the end; set before hasBegun, nil without an observer

	hashed atomic.Pointer[string] // see hash; nil before it is needed

	conv atomic.Pointer[legacy.Session] // set once, under mu

	attaching sync.Mutex // held while standalone and its subscription change; locked before mu

	mu         sync.Mutex                // guards the fields below
	hasBegun   bool                      // Begin was called, and End was not
	streams    map[string]*sessionStream // of unfinished calls, by name; initially nil
	following  map[string]*follower      // of streams at other processes, by name; initially nil
	lost       []*sessionStream          // of calls whose response is not stored, newest last
	standalone *standalone               // the GET stream; initially nil
	left       *sessionStream            // the GET stream that ended last here; initially nil
	ended      bool
	dropped    bool // by this process only; set before ended
	// initializing cancels the initialize request in progress; may be nil.
	initializing context.CancelCauseFunc
}

// principal returns the Principal.Key of the owner.
func (s *session) principal() string {
	if s.caller.isAnonymous {
		return ""
	}
	return s.caller.key
}

// close ends the calls and the streams of the session. It reports whether the session had begun. ctx
// bounds the time to store messages.
func (s *session) close(ctx context.Context, cause error) (hadBegun bool) {
	s.mu.Lock()
	hadBegun, s.hasBegun, s.ended = s.hasBegun, false, true
	conv, alone := s.conversation(), s.standalone
	isOffline := alone != nil && alone.connected == 0
	if s.initializing != nil {
		s.initializing(cause)
	}
	for _, stream := range s.streams {
		stream.sessionEnded.Store(!s.dropped)
	}
	for _, f := range s.following {
		peer.Wake(f.wake)
	}
	s.mu.Unlock()
	if conv != nil {
		conv.Close(cause)
	}
	if alone != nil {
		alone.stream.sessionEnded.Store(!s.dropped)
		alone.queue.close()
		if isOffline && s.dropped {
			alone.store(ctx)
		}
	}
	if s.queue != nil {
		s.queue.close()
	}
	return hadBegun
}

// keepAlive pings the client of an initialized session on the stream of a queue until stop is
// called. It ends the session, at this process, if the client does not respond.
func (h *Handler) keepAlive(s *session, q *messageQueue) (stop func()) {
	interval := h.opts.Sessions.PingInterval
	if interval == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.conversation().KeepAlive(ctx, legacy.Stream(q.send), interval, work.Go); err != nil {
			h.opts.Logger.Warn("mcphttp: session ended: the client does not respond to pings", "error", err)
			if h.sessions.take(s) { // other processes may still reach the client
				h.sessions.pass(s, mcp.ErrDisconnected)
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// conversation returns the translator of the session; nil until an HTTP+SSE session is initialized.
func (s *session) conversation() *legacy.Session { return s.conv.Load() }

// digest returns a hash that identifies a principal or a session to a store. That of anonymous
// callers is empty.
func digest(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// find returns the session of a Streamable HTTP request, which the caller releases. The session
// must belong to the principal. Spec: basic/transports#session-management
func (h *Handler) find(r *http.Request, head *head, principal *mcp.Principal) (*session, *refusal) {
	if !head.id.sent {
		return nil, refuse(http.StatusBadRequest, "header "+headerSession+" is missing: send initialize first")
	}
	s := h.sessions.acquire(head.id.value, principal.Key())
	if s == nil {
		var no *refusal
		if s, no = h.load(r, head.id.value, principal); no != nil {
			return nil, h.afterShutdown(no)
		}
	}
	if !h.sessions.refresh(s) {
		h.sessions.release(s)
		return nil, h.afterShutdown(errNoSession)
	}
	no := errNoSession // for an HTTP+SSE session
	if conv := s.conversation(); conv != nil && s.queue == nil {
		no = checkSessionVersion(head.version, h.sessions.config.Revisions)
	}
	if no != nil {
		h.sessions.release(s)
		return nil, no
	}
	return s, nil
}

// errNoSession does not distinguish sessions that never existed, ended, or belong to another
// principal.
var errNoSession = refuse(http.StatusNotFound, "no such session")

// checkSessionVersion refuses a version header that no session can use. The header should name the
// negotiated version, but another accepted version is ignored. accepted holds the versions that the
// server accepts; nil for all. Spec: basic/transports#protocol-version-header (2025-06-18,
// 2025-11-25)
func checkSessionVersion(version field, accepted []wire.Revision) *refusal {
	if !version.sent {
		return nil
	}
	rev, known := wire.ParseRevision(version.value)
	if !known || rev.Modern() {
		return refuse(http.StatusBadRequest, "header "+headerVersion+" must name a protocol version that has sessions")
	}
	if accepted != nil && !slices.Contains(accepted, rev) {
		return &refusal{http.StatusBadRequest, wire.UnsupportedVersion(version.value, accepted)}
	}
	return nil
}
