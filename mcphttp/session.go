package mcphttp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// SessionOptions configures the sessions that clients of the older revisions open with initialize. The zero value is
// right for most servers.
type SessionOptions struct {
	// Max and MaxPerPrincipal bound the sessions, in all and for one authenticated caller. Anonymous callers are
	// bounded in all only. Default: 10,000 and 64.
	Max             int
	MaxPerPrincipal int
	// IdleTimeout is how long a session lasts without a request or an open stream. A request that waits for an answer
	// of its client counts for 10 minutes; then it fails. One that waits for the result of a task counts until the task is
	// over, or its client has been away for 10 minutes. Default: 30 minutes.
	IdleTimeout time.Duration
	// InitTimeout is the same for a session that was opened and never used. Default: 30 seconds.
	InitTimeout time.Duration
	// MaxInFlight is how many requests of one session are worked on at once. Default: 256.
	MaxInFlight int
	// Events keeps what was sent on streams, for clients whose connection broke. Default: a store in memory with room
	// for 256 MiB in all, and for 10 minutes, 1000 events or 4 MiB of each stream.
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

func (o *SessionOptions) validate() error {
	return errors.Join(
		positive("Sessions.Max", o.Max),
		positive("Sessions.MaxPerPrincipal", o.MaxPerPrincipal),
		positive("Sessions.IdleTimeout", o.IdleTimeout),
		positive("Sessions.InitTimeout", o.InitTimeout),
		positive("Sessions.MaxInFlight", o.MaxInFlight),
	)
}

// A session is one client that opened with initialize. It belongs to the principal that opened it, and to nobody else
// does it exist. While nothing happens it costs its memory and nothing else.
type session struct {
	id        string
	principal string        // Principal.Key of the owner
	digest    string        // of principal, for the event store
	queue     *messageQueue // of the stream of an HTTP+SSE session; nil on Streamable HTTP
	part      *tablePart    // that the session is in, or was

	// The lock of the part of the table that it is in guards these.
	users   int32         // HTTP requests that are being served for it
	used    bool          // it was spoken to after it was opened
	touched time.Duration // when it was last let go of, since the table was made

	conv atomic.Pointer[legacy.Session] // set once, under mu

	mu         sync.Mutex                // guards the fields below
	streams    map[string]*sessionStream // of unfinished calls, by name; nil until there is one
	standalone *standalone               // the GET stream; nil until there is one
	ended      bool
}

// close ends everything that goes on in the session.
func (s *session) close(cause error) {
	s.mu.Lock()
	s.ended = true
	conv, alone := s.conversation(), s.standalone
	for _, stream := range s.streams {
		stream.sessionEnded.Store(true)
	}
	s.mu.Unlock()
	if conv != nil {
		conv.Close(cause)
	}
	if alone != nil {
		alone.stream.sessionEnded.Store(true)
		alone.queue.close()
	}
	if s.queue != nil {
		s.queue.close()
	}
}

// conversation returns the translator of the session; nil before HTTP+SSE has initialized it.
func (s *session) conversation() *legacy.Session { return s.conv.Load() }

// digest stands for a principal where its name is nobody's business. Anonymous callers have none.
func digest(principal string) string {
	if principal == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:])
}

// find returns the session that a request of Streamable HTTP names, if it is the principal's. The caller releases it.
//
// Spec: basic/transports#session-management
func (h *Handler) find(head *head, principal *mcp.Principal) (*session, *refusal) {
	if !head.id.sent {
		return nil, refuse(http.StatusBadRequest, "header "+headerSession+" is missing: send initialize first")
	}
	s := h.sessions.acquire(head.id.value, principal.Key())
	if s == nil {
		return nil, errNoSession
	}
	no := errNoSession // if it is one of HTTP+SSE
	if conv := s.conversation(); conv != nil && s.queue == nil {
		no = checkSessionVersion(head.version)
	}
	if no != nil {
		h.sessions.release(s)
		return nil, no
	}
	return s, nil
}

// errNoSession is the same for sessions that never were, have ended or belong to someone else.
var errNoSession = refuse(http.StatusNotFound, "no such session")

// checkSessionVersion refuses a version header that no session can have. It should be the version that the session has
// settled on, but clients get away with another one: the session knows better.
//
// Spec: basic/transports#protocol-version-header
func checkSessionVersion(version field) *refusal {
	if !version.sent {
		return nil
	}
	if rev, known := wire.ParseRevision(version.value); !known || rev.Modern() {
		return refuse(http.StatusBadRequest, "header "+headerVersion+" names no version that has sessions")
	}
	return nil
}

// endSession serves DELETE.
func (h *Handler) endSession(r *http.Request, head *head) *refusal {
	s, no := h.find(head, mcp.PrincipalFrom(r.Context()))
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	h.sessions.end(s, mcp.ErrClosed)
	return nil
}
