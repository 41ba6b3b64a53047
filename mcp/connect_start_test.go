package mcp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A server that has no sessions starts after the client has given up the probe. It refuses
// initialize with the code for an unsupported version.
//
// Requirement: VER-11
func TestSlowModernServerIsProbedAgain(t *testing.T) {
	withRawConnection(t, nil, func(s *rawServer) {
		time.Sleep(12 * time.Second)
		probe, _ := s.next()
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, probe, discovered)
		id, method := s.next()
		if method != "initialize" {
			t.Errorf("got %s, want initialize", method)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"unsupported protocol version",`+
			`"data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}`, id)
		id, method = s.next()
		if method != "server/discover" {
			t.Errorf("got %s, want server/discover", method)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, discovered)
		id, _ = s.next()
		s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		s.send(noContent, id)
	}, func(t *testing.T, c *mcp.Client) {
		if c.Revision() != "2026-07-28" {
			t.Errorf("got revision %s, want 2026-07-28", c.Revision())
		}
		updates := 0
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { updates++ }})
		if _, err := c.CallTool(ctx, "x", nil); err != nil || updates != 1 {
			t.Errorf("got %v, %d updates, want a result and 1 update", err, updates)
		}
	})
}

// A slowTransport is the transport of a command, whose server is served by another transport and
// takes a time to start.
type slowTransport struct {
	*mcp.CommandTransport
	served mcp.SessionTransport
	ready  time.Time
}

func (s *slowTransport) wait(ctx context.Context) error {
	select {
	case <-time.After(time.Until(s.ready)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slowTransport) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.served.RoundTrip(ctx, req)
}

func (s *slowTransport) OpenSession(ctx context.Context, receive func(*jsonrpc.Message)) (driver.SessionConn, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.served.OpenSession(ctx, receive)
}

func (s *slowTransport) Close() error { return s.served.Close() }

// A server that a package runner downloads may take minutes to respond for the first time.
func TestServersOfPackageRunnersMayStartSlowly(t *testing.T) {
	for _, test := range []struct {
		name, revision string
		timeout, start time.Duration
		connects       bool
	}{
		{"npx", "", 0, 2 * time.Minute, true},
		{"npx", "2026-07-28", 0, 2 * time.Minute, true},
		{"/usr/bin/docker", "2025-06-18", 0, 2 * time.Minute, true},
		{`uvx.exe`, "", 0, 2 * time.Minute, true},
		{"npx", "", 0, 5 * time.Minute, false},
		{"npx", "", 30 * time.Second, time.Minute, false},
		{"server", "", 0, 2 * time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			served := mcp.InMemory(calculator(t)).(mcp.SessionTransport)
			transport := &slowTransport{mcp.Command(test.name), served, time.Now().Add(test.start)}
			opts := &mcp.ClientOptions{Timeout: test.timeout, Revision: test.revision, Logger: discardLogger()}
			c, err := mcp.Connect(t.Context(), transport, opts)
			if (err == nil) != test.connects || err != nil && !errors.Is(err, mcp.ErrTimeout) {
				t.Errorf("%+v: got error %v", test, err)
			}
			if err == nil {
				c.Close()
			}
		})
	}
}
