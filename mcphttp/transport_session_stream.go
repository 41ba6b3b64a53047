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

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Limits of the resumption of a stream whose connection broke.
const (
	// maxAttempts is the number of attempts in a row without progress. With the pauses between them
	// they take about half a minute: long enough for a server to restart.
	maxAttempts = 5
	// maxResumptions is the number of resumptions of a call in total: hours at the pace of
	// servers that let their clients poll.
	maxResumptions = 1000
	// minPause and maxPause bound the retry time of a server.
	minPause, maxPause = 100 * time.Millisecond, time.Minute
	// firstPause is the pause if the server sets no retry time. It doubles with every attempt
	// without progress, up to longestPause. Up to half of it is added as jitter.
	firstPause, longestPause = time.Second, 20 * time.Second
	// steadyTime is how long a connection must last to count as progress: servers may close idle
	// connections.
	steadyTime = 10 * time.Second
)

// A position is the position up to which a stream was read, and the state of the attempts to resume
// it.
type position struct {
	lastID   string
	retry    time.Duration // set by the server; zero for never
	failures int           // attempts in a row without progress
	useful   bool          // there was progress
}

// read records the bytes of the stream that were read on a connection.
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

// pause returns the time to wait before the next attempt: the retry time of the server, doubled
// after attempts without progress, or a backoff with jitter, so that the clients of a server do not
// reconnect all at once. Spec: basic/transports#sending-messages-to-the-server (2025-11-25)
func (p *position) pause() time.Duration {
	if p.retry > 0 {
		return min(p.retry<<p.failures, max(p.retry, longestPause))
	}
	pause := min(firstPause<<p.failures, longestPause)
	return pause + rand.N(pause/2)
}

// wait waits for the next attempt. It fails after maxAttempts, or if the exchange is over.
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
	errAttempts = fmt.Errorf("the stream could not be resumed in %d attempts", maxAttempts)
	errEndless  = fmt.Errorf("the stream was resumed %d times without an end", maxResumptions)
	errGap      = errors.New("the server no longer stores the rest of the stream")
)

// callStream reads the stream that responds to a POST. If its connection breaks, the stream is
// resumed. Spec: basic/transports#resumability-and-redelivery (2025-11-25)
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
	at.failures = 0 // this was not an attempt to resume
	for range maxResumptions {
		if !isBreak(err) || !canResume(at.lastID) || x.caller.Err() != nil {
			return nil, x.unanswered(err)
		}
		x.close() // its connection is broken
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

// isBreak reports whether err may be the end of a connection and not of the stream on it.
func isBreak(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.isTransient()
	}
	_, isBroken := errors.AsType[*breakError](err)
	return isBroken || wasNotSent(err) && !isUnauthorized(err)
}

// unwrapped returns the error within a TransportError, whose MayHaveRun does not apply to a stream.
func unwrapped(err error) error {
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok {
		return failed.Err
	}
	return err
}

// canResume reports whether a stream can be resumed after the event with that id.
func canResume(id string) bool { return id != "" && !hasControl(id) && strings.TrimSpace(id) == id }

// readStream reads a stream on a new connection: it resumes after the event of the position, or
// opens a new stream if there is none. It calls opened when the server accepted the request.
// With a zero id it reads until an error.
func (l *clientSession) readStream(
	ctx context.Context, method string, at *position, id jsonrpc.ID, opened func(),
) (*jsonrpc.Message, error) {
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
		return nil, newStatusError(x.res, x.diagnosis(), "the body is not an event stream")
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

// diagnoseGone returns the error for a stream that the server does not know: either the session is
// lost, or only the events of the stream are.
func (l *clientSession) diagnoseGone(ctx context.Context) error {
	if l.exists(ctx) {
		return errGap
	}
	l.end(driver.ErrSessionLost)
	return driver.ErrSessionLost
}

// A listenState is the state of the standalone stream.
type listenState uint8

const (
	listenNever listenState = iota
	listenRunning
	listenRefused // by the server
	listenFailed  // after too many attempts
)

// listen opens the standalone stream and keeps it open in the background. The session works without
// it. The channel is closed when the server accepted or refused the stream. Spec:
// basic/transports#listening-for-messages-from-the-server (2025-11-25)
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

// relisten opens the standalone stream again if it was given up and the server responds again.
func (l *clientSession) relisten() {
	l.mu.Lock()
	failed := l.listening == listenFailed
	l.mu.Unlock()
	if failed {
		l.listen()
	}
}

// keepStream reads the standalone stream until the session ends, the server refuses it, or it fails
// too often.
func (l *clientSession) keepStream(tried chan struct{}) {
	signal := sync.OnceFunc(func() { close(tried) })
	defer signal()
	var at position
	wasOpen := false
	for {
		isNew := l.hasListened.Load() && !canResume(at.lastID)
		_, err := l.readStream(l.life.ctx, http.MethodGet, &at, jsonrpc.ID{}, func() {
			wasOpen = true
			l.hasListened.Store(true)
			signal()
			if isNew {
				l.receive(l.life.ctx, nil) // messages in between are lost
			}
		})
		signal()
		switch {
		case l.endCause() != nil:
			return
		case isStatus(err, http.StatusNotFound) && at.lastID != "":
			at.lastID = "" // open a new stream
		case isStatus(err, http.StatusNotFound) && wasOpen &&
			errors.Is(l.diagnoseGone(l.life.ctx), driver.ErrSessionLost):
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

// stopListening records that there is no standalone stream. Status 405 says that the server offers
// no stream, and so does 204 of some servers; they are not logged. Some servers respond with other
// statuses.
func (l *clientSession) stopListening(state listenState, err error) {
	l.mu.Lock()
	l.listening = state
	l.mu.Unlock()
	level := slog.LevelWarn
	switch {
	case l.endCause() != nil, isStatus(err, http.StatusMethodNotAllowed), isStatus(err, http.StatusNoContent):
		return
	case isStatus(err, http.StatusBadRequest), isStatus(err, http.StatusNotFound):
		level = slog.LevelInfo
	}
	l.t.log.Log(context.Background(), level, "mcphttp: the session has no standalone stream", "error", err)
}

func isStatus(err error, code int) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.StatusCode == code
}
