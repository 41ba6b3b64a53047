package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// mayHaveRun returns MayHaveRun of the TransportError in err, and fails the test if there is none.
func mayHaveRun(t *testing.T, err error) bool {
	t.Helper()
	var failed *mcp.TransportError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a TransportError", err)
	}
	return failed.MayHaveRun
}

// A request after Close has certainly not run.
func TestRequestAfterCloseDoesNotRun(t *testing.T) {
	for range 50 { // the outcome must not be a matter of luck
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) { return emptyContent, nil })
		c.Close()
		c.Close()
		_, err := c.CallTool(t.Context(), "x", nil)
		if !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) || !strings.Contains(err.Error(), "tools/call") {
			t.Fatalf("got %v", err)
		}
		if c.Revision() == "" || c.Capabilities().Tools == nil {
			t.Fatal("a closed client has forgotten its server")
		}
	}
}

// The maximum of one request applies although the client's timeout is longer.
func TestCAN14_MaxTimeoutBelowTimeoutApplies(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			opts, o := &mcp.ClientOptions{}, mcp.CallOptions{}
			if own {
				o.MaxTimeout = 5 * time.Second
			} else {
				opts.MaxTimeout = 5 * time.Second
			}
			c := newScriptedClient(t, opts, func(ctx context.Context, _ *mcp.Request) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
			began := time.Now()
			_, err := c.CallTool(mcp.WithCallOptions(t.Context(), o), "x", nil)
			if took := time.Since(began); took != 5*time.Second || !errors.Is(err, mcp.ErrTimeout) {
				t.Errorf("the call's own %t: after %v: %v", own, took, err)
			}
		})
	}
}

// A server of the session era that always waits for an answer cannot extend a request without limit.
func TestCAN14_InputRequestsPauseTheTimeoutForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		ctx := context.Background()
		ask := func(id int64) {
			_ = server.Write(ctx, jsonrpc.NewRequest(jsonrpc.IntID(id), "roots/list", nil))
		}
		var done sync.WaitGroup
		done.Go(func() {
			asked := int64(0)
			for {
				m, err := server.Read(ctx)
				if err != nil {
					return
				}
				switch {
				case m.Method == "server/discover":
					_ = server.Write(ctx, jsonrpc.NewErrorResponse(m.ID, &jsonrpc.Error{Code: -32601, Message: "?"}))
				case m.Method == "initialize":
					_ = server.Write(ctx, jsonrpc.NewResponse(m.ID, json.RawMessage(initialized)))
				case m.Method == "tools/call":
					ask(1)
					ask(2)
					asked = 2
				case m.Kind() == jsonrpc.Response:
					asked++
					ask(asked)
				}
			}
		})
		opts := &mcp.ClientOptions{Logger: quiet(), Timeout: 10 * time.Second, MaxTimeout: time.Minute, InputTimeout: 2 * time.Minute}
		turn := make(chan struct{}, 1)
		opts.Roots = func(context.Context) ([]mcp.Root, error) {
			turn <- struct{}{} // one after the other, so that one always waits
			time.Sleep(5 * time.Second)
			<-turn
			return nil, nil
		}
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), opts)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		calling, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = c.CallTool(calling, "x", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took > 4*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		c.Close()
		server.Close()
		done.Wait()
		time.Sleep(time.Minute) // the functions return
	})
}

// Many requests that end together are all cancelled, even if the server does not read at that moment.
func TestCAN10_ManyRequestsCancelledTogether(t *testing.T) {
	const calls = 500
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		heard := map[string]int{}
		var served sync.WaitGroup
		served.Go(func() {
			for m, err := server.Read(context.Background()); err == nil; m, err = server.Read(context.Background()) {
				if m.Method == "server/discover" {
					_ = server.Write(context.Background(), jsonrpc.NewResponse(m.ID, json.RawMessage(discovered)))
				}
				if heard[m.Method]++; heard["tools/call"] == calls && heard["notifications/cancelled"] == 0 {
					time.Sleep(2 * time.Second)
				}
			}
		})
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &mcp.ClientOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var done sync.WaitGroup
		for range calls {
			done.Go(func() { _, _ = c.CallTool(ctx, "x", nil) })
		}
		done.Wait()
		time.Sleep(10 * time.Second)
		c.Close()
		server.Close()
		served.Wait()
		if n := heard["notifications/cancelled"]; n != calls {
			t.Errorf("the server heard of %d of %d", n, calls)
		}
	})
}

// A request that ended while the server did not read is cancelled when it reads again.
func TestCAN10_RequestWrittenAfterItsEndIsCancelled(t *testing.T) {
	var methods []string
	withRawServer(t, nil, func(s *rawServer) {
		time.Sleep(time.Hour)
		for range 2 {
			_, method := s.next()
			methods = append(methods, method)
		}
	}, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := fmt.Sprint(methods); got != "[tools/call notifications/cancelled]" {
			t.Errorf("the server heard %s", got)
		}
	})
}

// A faulty is a Conn whose Write fails after it has written.
type failingConn struct {
	mcp.Conn
	broken atomic.Bool
}

func (f *failingConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	err := f.Conn.Write(ctx, m)
	if f.broken.Load() {
		return errors.New("flush: the network is unreachable")
	}
	return err
}

func TestSTDIO17_UnknownWriteErrorMayHaveRun(t *testing.T) {
	client, server := mcp.Pipe()
	f := &failingConn{Conn: client}
	ran := make(chan struct{}, 9)
	s := newServer(t, nil)
	addTool(s, "x", func(context.Context) (string, error) {
		ran <- struct{}{}
		return "", nil
	})
	var served sync.WaitGroup
	served.Go(func() { _ = mcp.Serve(context.Background(), s, server, nil) })
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(f), &mcp.ClientOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	f.broken.Store(true)
	_, err = c.CallTool(t.Context(), "x", nil)
	<-ran
	if !mayHaveRun(t, err) {
		t.Errorf("the call has run: %v", err)
	}
	c.Close()
	served.Wait()
}

// Requests may end while the client is closed.
func TestCloseWhileRequestsEnd(t *testing.T) {
	for range 100 {
		transport, _ := serveResponses(t, responseTable{"server/discover": discovered})
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 8 {
			done.Go(func() { _, _ = c.CallTool(ctx, "x", nil) })
		}
		done.Go(cancel)
		done.Go(func() { c.Close() })
		done.Wait()
	}
}

// A stream on which a message was written in part cannot be used: the server could not read what follows.
func TestSTDIO17_PartialWriteEndsTheStream(t *testing.T) {
	client, server := net.Pipe()
	lines := bufio.NewReader(server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served sync.WaitGroup
	enough, ended := make(chan struct{}), make(chan error, 1)
	served.Go(func() {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(server, `{"jsonrpc":"2.0","id":1,"result":%s}`+"\n", discovered)
		_, _ = io.ReadFull(lines, make([]byte, 10)) // of a message that is longer
		cancel()
		<-enough
		_, err := io.Copy(io.Discard, lines)
		ended <- err
	})
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(client, client, nil)), &mcp.ClientOptions{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(ctx, strings.Repeat("x", 1<<20), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(enough)
	for range 2 {
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, mcp.ErrDisconnected) || mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
	}
	<-ended // without Close
	c.Close()
	served.Wait()
}
