package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of taking up a stream whose connection broke.
const (
	// maxAttempts is how often in a row that may bring nothing new. With the pauses between them, that is about half a
	// minute: long enough for a server that is restarted.
	maxAttempts = 5
	// maxResumptions is how often one call is taken up in all: at the pace of servers that have their clients poll, for
	// hours.
	maxResumptions = 1000
	// minPause and maxPause bound the pause that a server asks for: it can neither be made to be flooded nor to be waited
	// for in vain.
	minPause, maxPause = 100 * time.Millisecond, time.Minute
	// firstPause is the pause where a server asks for none. It doubles with every attempt in vain, up to longestPause, and
	// up to half of it is added.
	firstPause, longestPause = time.Second, 20 * time.Second
	// steadyTime is how long a connection has to last to count as something new in itself: servers may close quiet ones.
	steadyTime = 10 * time.Second
)

// A position is where a stream was read up to, and how the attempts to read on have gone.
type position struct {
	lastID   string
	retry    time.Duration // asked for by the server; zero for never
	failures int           // attempts in a row that brought nothing new
	useful   bool          // one has brought something new
}

// read takes note of what was read of the stream on a connection.
func (p *position) read(events eventReader, taken int, lasted time.Duration) {
	p.failures++
	id := events.LastEventID()
	if taken > 0 || lasted >= steadyTime || id != "" && id != p.lastID {
		p.failures, p.useful = 0, true
	}
	if id != "" {
		p.lastID = id
	}
	if retry, ok := events.Retry(); ok {
		p.retry = min(max(retry, minPause), maxPause)
	}
}

// pause returns the time to wait before the next attempt. What the server asks for is waited for exactly, unless that has
// been in vain; else the pause has jitter, so that not all clients of a server come back at once.
//
// Spec: basic/transports#sending-messages-to-the-server (2025-11-25)
func (p *position) pause() time.Duration {
	if p.retry > 0 {
		return min(p.retry<<p.failures, max(p.retry, longestPause))
	}
	pause := min(firstPause<<p.failures, longestPause)
	return pause + rand.N(pause/2)
}

// wait waits for the next attempt. It fails if there have been enough of them, or the trip is not to go on.
func (p *position) wait(ctx context.Context, over <-chan struct{}) error {
	if p.failures >= maxAttempts {
		return errAttempts
	}
	timer := time.NewTimer(p.pause())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over:
		return mcp.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	errAttempts = fmt.Errorf("the stream could not be taken up again in %d attempts", maxAttempts)
	errEndless  = fmt.Errorf("the stream was taken up %d times and has no end", maxResumptions)
	errGap      = errors.New("the server no longer has the rest of the stream")
)

// callStream reads the stream that answers a POST. If its connection breaks, the stream goes on, and is read from where
// it was read up to.
//
// Spec: basic/transports#resumability-and-redelivery (2025-11-25)
func (l *clientSession) callStream(x *clientExchange, id jsonrpc.ID) (*jsonrpc.Message, error) {
	began := time.Now()
	events := x.openEvents()
	defer events.close()
	m, err := x.events(events, id, l.receive)
	if err == nil {
		x.drain()
		return m, nil
	}
	var at position
	at.read(events, x.taken, time.Since(began))
	at.failures = 0 // this was no attempt to take it up
	for range maxResumptions {
		if !isBreak(err) || !canResume(at.lastID) || x.caller.Err() != nil {
			return nil, x.unanswered(err)
		}
		x.close() // its connection is of no more use
		if stopped := at.wait(x.caller, l.life.ctx.Done()); stopped != nil {
			return nil, x.unanswered(fmt.Errorf("%w: %w", stopped, err))
		}
		m, again := l.readStream(x.caller, x.method, &at, id, func() {})
		if again == nil {
			return m, nil
		}
		if isStatus(again, http.StatusNotFound) {
			return nil, x.unanswered(l.diagnoseGone(x.caller))
		}
		err = again
	}
	return nil, x.unanswered(fmt.Errorf("%w: %w", errEndless, err))
}

// isBreak reports whether err is the end of a connection, and not of the stream on it, or at least may be.
func isBreak(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.isTransient()
	}
	return isBroken(err) || wasNotSent(err) && !isUnauthorized(err)
}

// unwrapped returns what happened, without what it means for the request: for a stream it means something else.
func unwrapped(err error) error {
	var failed *mcp.TransportError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// canResume reports whether a stream can be taken up after the event with that id.
func canResume(id string) bool { return id != "" && !hasControl(id) && strings.TrimSpace(id) == id }

// follow reads a stream on a new connection: the one that an event belongs to, or a new one where the position has no
// event. It calls opened when the server has taken it. Without an id there is no answer, and an error in the end.
func (l *clientSession) readStream(ctx context.Context, method string, at *position, id jsonrpc.ID, opened func()) (*jsonrpc.Message, error) {
	x, _, err := l.startExchange(ctx, &l.life, method)
	if err != nil {
		return nil, err
	}
	defer x.end()
	l.mu.Lock()
	header := maps.Clone(l.header)
	l.mu.Unlock()
	if canResume(at.lastID) {
		header[headerLastEvent] = []string{at.lastID}
	}
	began := time.Now()
	if err := x.do(&http.Request{Method: http.MethodGet, URL: l.t.target, Header: header}); err != nil {
		at.failures++
		return nil, unwrapped(err)
	}
	if x.res.StatusCode != http.StatusOK || !x.isEvents() {
		at.failures++
		return nil, newStatusError(x.res, x.diagnosis(), "no event stream")
	}
	opened()
	events := x.openEvents()
	defer events.close()
	m, err := x.events(events, id, l.receive)
	at.read(events, x.taken, time.Since(began))
	if err == nil {
		x.drain()
	}
	return m, err
}

// gone finds out what it means that the server does not know a stream. A session that it still knows has only lost what
// was on the stream.
func (l *clientSession) diagnoseGone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_, err := l.RoundTrip(ctx, jsonrpc.NewRequest(jsonrpc.ID{}, wire.MethodPing, nil))
	if errors.Is(err, mcp.ErrSessionLost) {
		return mcp.ErrSessionLost
	}
	return errGap
}

// listenState is how it stands with the standalone stream.
type listenState uint8

const (
	listenNever listenState = iota
	listenRunning
	listenRefused // the server has none
	listenFailed  // too often
)

// listen opens the standalone stream, and keeps it open in the background, apart from everything else: a session works
// without it. What it gives is closed when the server has taken or refused the stream.
//
// Spec: basic/transports#listening-for-messages-from-the-server (2025-11-25)
func (l *clientSession) listen() (opened <-chan struct{}) {
	tried := make(chan struct{})
	l.mu.Lock()
	starts := l.endpoint == nil && l.listening != listenRunning && l.listening != listenRefused && l.ended == nil
	if starts {
		l.listening = listenRunning
	}
	l.mu.Unlock()
	if !starts || !l.life.run(func() { l.keepStream(tried) }) {
		close(tried)
	}
	return tried
}

// revive opens the standalone stream again, if that was given up and the server is there again.
func (l *clientSession) relisten() {
	l.mu.Lock()
	failed := l.listening == listenFailed
	l.mu.Unlock()
	if failed {
		l.listen()
	}
}

// keepStream reads the standalone stream until the session ends, or the server refuses it, or it fails too often.
func (l *clientSession) keepStream(tried chan struct{}) {
	signal := sync.OnceFunc(func() { close(tried) })
	defer signal()
	var at position
	wasOpen := false
	for {
		anew := l.hasListened.Load() && !canResume(at.lastID)
		_, err := l.readStream(l.life.ctx, http.MethodGet, &at, jsonrpc.ID{}, func() {
			wasOpen = true
			l.hasListened.Store(true)
			signal()
			if anew {
				l.receive(nil) // what was said meanwhile is lost
			}
		})
		signal()
		switch {
		case l.isEnded():
			return
		case isStatus(err, http.StatusNotFound) && at.lastID != "":
			at.lastID = "" // what is lost is lost: begin anew
		case isStatus(err, http.StatusNotFound) && wasOpen && errors.Is(l.diagnoseGone(l.life.ctx), mcp.ErrSessionLost):
			return
		case !isBreak(err):
			l.stopListening(listenRefused, err)
			return
		}
		if stopped := at.wait(l.life.ctx, l.done); stopped != nil {
			if wasOpen && !at.useful {
				l.stopListening(listenRefused, err)
			} else {
				l.stopListening(listenFailed, err)
			}
			return
		}
	}
}

// giveUpStream says that there is no standalone stream. That a server has none is nothing special, nor are the other
// statuses by which servers without one say so.
func (l *clientSession) stopListening(state listenState, err error) {
	l.mu.Lock()
	l.listening = state
	l.mu.Unlock()
	level := slog.LevelWarn
	switch {
	case l.isEnded(), isStatus(err, http.StatusMethodNotAllowed):
		return
	case isStatus(err, http.StatusBadRequest), isStatus(err, http.StatusNotFound):
		level = slog.LevelInfo
	}
	l.t.log.Log(context.Background(), level, "mcphttp: the session has no stream for what belongs to no request", "error", err)
}

func isStatus(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.StatusCode == code
}
