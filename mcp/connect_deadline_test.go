package mcp_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A slowConn is a Conn whose Close takes as long as that of a child process that does not exit.
type slowConn struct {
	mcp.Conn
	closed *atomic.Bool
}

func (c slowConn) Close() error {
	time.Sleep(closeBound)
	c.closed.Store(true)
	return c.Conn.Close()
}

// The server reads nothing and does not exit. The caller must have its error at its deadline.
func TestConnectReturnsAtItsDeadline(t *testing.T) {
	for _, revision := range []string{"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		for _, deadline := range []time.Duration{0, time.Second, 5 * time.Second, 15 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				client, server := mcp.Pipe()
				defer server.Close()
				var closed atomic.Bool
				transport := mcp.NewConnTransport(slowConn{client, &closed})
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				began := time.Now()
				_, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Revision: revision, Logger: discardLogger()})
				if took := time.Since(began); took != deadline {
					t.Errorf("revision %q, deadline %v: Connect took %v", revision, deadline, took)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("revision %q, deadline %v: got %v, want the end of the context", revision, deadline, err)
				}
				time.Sleep(2 * closeBound)
				if err := transport.Close(); err != nil || !closed.Load() {
					t.Errorf("revision %q, deadline %v: got %v, closed %t, want a closed transport",
						revision, deadline, err, closed.Load())
				}
			})
		}
	}
}
