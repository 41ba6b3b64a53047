package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// restartPause is how long a server that died young is left alone before it is started a third time; it doubles with
	// every start.
	restartPause = time.Second
	// maxRestartPause ends the doubling.
	maxRestartPause = 30 * time.Second
	// oldAge is how long a server has to have lived for its death to count as an accident.
	oldAge = 10 * time.Second
)

// OverConn returns a Transport over a Conn, such as that of a socket or one end of a [Pipe]. It ends when the Conn does.
func OverConn(conn Conn) Transport {
	t := &connTransport{}
	used := false
	t.init(func(context.Context) (Conn, error) {
		if used {
			return nil, fmt.Errorf("%w: the Conn has ended", ErrDisconnected)
		}
		used = true
		return conn, nil
	})
	t.unused = conn
	return t
}

// A connTransport is a Transport over Conns, of which it has one at a time: a new one when the last has ended, as far as
// there are new ones.
type connTransport struct {
	dial   func(ctx context.Context) (Conn, error)
	logger *slog.Logger
	unused Conn // closed if nothing was ever sent

	turn    chan struct{} // holds a token while the fields below are looked at
	current *link         // nil before the first request
	born    time.Time     // of current
	young   int           // servers that have died young, one after the other
	rested  time.Time     // when the next one may be started
	closed  bool

	routes   routes
	unrouted func(m *jsonrpc.Message) // takes notifications that belong to no request
}

func (t *connTransport) init(dial func(ctx context.Context) (Conn, error)) {
	t.dial, t.turn = dial, make(chan struct{}, 1)
	t.unrouted = func(*jsonrpc.Message) {}
}

func (t *connTransport) log() *slog.Logger { return cmp.Or(t.logger, slog.Default()) }

// RoundTrip sends a request in the modern form. If the server has ended since the last one, it is started again; the first
// to notice may be the request itself, of which nothing has left then.
func (t *connTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	l, fresh, err := t.live(ctx, req.Method)
	if err != nil {
		return nil, err
	}
	if err := req.open(); err != nil {
		return nil, err
	}
	res, err := l.roundTripModern(ctx, req, &t.routes)
	if fresh || err == nil || !unsentAtEnd(err) {
		return res, err
	}
	again, _, err2 := t.live(ctx, req.Method)
	if err2 != nil {
		return nil, err
	}
	return again.roundTripModern(ctx, req, &t.routes)
}

// open reads the envelope of a request that was not opened yet.
func (r *Request) open() error {
	if r.env.Meta != nil {
		return nil
	}
	env, err := wire.Open(r.Params)
	if err != nil {
		return err
	}
	r.env = env
	return nil
}

// live returns the link to a server that lives, and reports whether that was started now.
func (t *connTransport) live(ctx context.Context, method string) (l *link, fresh bool, err error) {
	if t.dial == nil {
		return nil, false, &TransportError{Method: method, Err: errors.New("the transport was not made by Command or OverConn")}
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	if t.closed {
		return nil, false, &TransportError{Method: method, Err: ErrClosed}
	}
	if t.current != nil && !t.current.isOver() {
		return t.current, false, nil
	}
	t.bury()
	if err := t.rest(ctx); err != nil {
		return nil, false, err
	}
	conn, err := t.dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return nil, false, &TransportError{Method: method, Err: err}
	}
	t.unused, t.born = nil, time.Now()
	t.current = newLink(conn, t.log(), t.receive)
	return t.current, true, nil
}

// bury makes room for another server, which has to wait if too many have died young.
func (t *connTransport) bury() {
	if t.current == nil {
		return
	}
	_ = t.current.Close()
	if time.Since(t.born) > oldAge {
		t.young = 0
	}
	t.current = nil
	if t.young++; t.young >= 2 {
		t.rested = time.Now().Add(min(restartPause<<min(t.young-2, 10), maxRestartPause))
	}
}

// rest waits until the next server may be started, whoever has begun to wait for that.
func (t *connTransport) rest(ctx context.Context) error {
	left := time.Until(t.rested)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive takes what no request awaits.
//
// Spec: basic/transports/stdio (2026-07-28): servers send no requests.
func (t *connTransport) receive(m *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Request {
		t.log().Debug("mcp: the server has sent a request, which it must not", "method", m.Method)
		return
	}
	if !t.routes.notified(context.Background(), m) {
		t.unrouted(m)
	}
}

// Close ends the Conn.
func (t *connTransport) Close() error {
	if t.dial == nil {
		return nil
	}
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	t.closed = true
	switch {
	case t.current != nil:
		return t.current.Close()
	case t.unused != nil:
		conn := t.unused
		t.unused = nil
		return conn.Close()
	}
	return nil
}

// unsentAtEnd reports whether err says that the stream has ended before the request could leave.
func unsentAtEnd(err error) bool {
	var failed *TransportError
	return ended(err) && errors.As(err, &failed) && !failed.MayHaveRun
}

// ended reports whether err is the end of a stream rather than an answer.
func ended(err error) bool {
	var failed *TransportError
	return errors.As(err, &failed) && errors.Is(err, ErrClosed)
}
