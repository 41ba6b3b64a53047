package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// meanBytes is the mean number of bytes after which a connection breaks.
	meanBytes = 400 << 10
	// refusedDials is the share of connections that are refused.
	refusedDials = 0.02
)

var errRefused = errors.New("soak: connection refused")

// faults breaks the connections of one client, at random and on request, and counts that. The
// faults of a stdio client are the deaths of its child.
type faults struct {
	n    atomic.Int64
	cuts atomic.Int64 // in progress

	mu    sync.Mutex // guards the fields below
	conns map[*faultConn]struct{}
	dead  bool // all connections are refused
}

// add records a fault that another part of the program causes.
func (f *faults) add() { f.n.Add(1) }

func (f *faults) count() int64 { return f.n.Load() }

// cutting reports whether a connection is being cut. It was counted but may have no effect yet.
func (f *faults) cutting() bool { return f.cuts.Load() > 0 }

func (f *faults) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	refuse := f.dead || rand.Float64() < refusedDials
	f.mu.Unlock()
	if refuse {
		f.add()
		return nil, errRefused
	}
	inner, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &faultConn{Conn: inner, faults: f, opened: time.Now()}
	c.left.Store(int64(rand.ExpFloat64() * meanBytes))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		_ = inner.Close()
		return nil, errRefused
	}
	if f.conns == nil {
		f.conns = map[*faultConn]struct{}{}
	}
	f.conns[c] = struct{}{}
	return c, nil
}

// cutAll resets every connection. If dead, all further ones are refused.
func (f *faults) cutAll(dead bool) {
	f.mu.Lock()
	f.dead = dead
	var all []*faultConn
	for c := range f.conns {
		all = append(all, c)
	}
	f.mu.Unlock()
	f.cuts.Add(1)
	defer f.cuts.Add(-1)
	f.add()
	for _, c := range all {
		c.cut()
	}
}

// A faultConn is a connection that is reset after a random number of bytes in both directions.
type faultConn struct {
	net.Conn
	faults *faults
	opened time.Time
	left   atomic.Int64
	used   atomic.Bool // something was written
}

func (c *faultConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return c.spend(n, err)
}

func (c *faultConn) Write(p []byte) (int, error) {
	c.used.Store(true)
	if left := max(c.left.Load(), 0); int64(len(p)) > left {
		n, _ := c.Conn.Write(p[:left])
		c.cut()
		return n, net.ErrClosed
	}
	n, err := c.Conn.Write(p)
	return c.spend(n, err)
}

// spend counts bytes, and cuts the connection within them if they are too many.
func (c *faultConn) spend(n int, err error) (int, error) {
	left := c.left.Add(-int64(n))
	if left >= 0 {
		return n, err
	}
	c.cut()
	return max(n+int(left), 0), net.ErrClosed
}

func (c *faultConn) cut() {
	c.faults.cuts.Add(1)
	defer c.faults.cuts.Add(-1)
	c.faults.add() // before the effect is seen
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset
	}
	_ = c.Close()
}

func (c *faultConn) Close() error {
	c.faults.mu.Lock()
	delete(c.faults.conns, c)
	c.faults.mu.Unlock()
	return c.Conn.Close()
}
