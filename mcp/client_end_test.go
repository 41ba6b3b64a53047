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

// mayHaveRun returns MayHaveRun of the TransportError in err. It fails the test for other errors.
func mayHaveRun(t *testing.T, err error) bool {
	t.Helper()
	var failed *mcp.TransportError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a TransportError", err)
	}
	return failed.MayHaveRun
}

func TestRequestAfterCloseDoesNotRun(t *testing.T) {
	for range 50 { // finds races
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) { return emptyContent, nil })
		c.Close()
		c.Close()
		_, err := c.CallTool(t.Context(), "x", nil)
		if !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) || !strings.Contains(err.Error(), "tools/call") {
			t.Fatalf("got error %v, want ErrClosed of tools/call, which has not run", err)
		}
		if c.Revision() == "" || c.Capabilities().Tools == nil {
			t.Fatal("Revision and Capabilities are empty after Close, want those of the server")
		}
	}
}

// Requirement: CAN-14
func TestMaxTimeoutBelowTimeoutApplies(t *testing.T) {
	for _, perCall := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			opts, o := &mcp.ClientOptions{}, mcp.CallOptions{}
			if perCall {
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
				t.Errorf("MaxTimeout of the call %t: got error %v after %v, want ErrTimeout after 5s", perCall, err,
					took)
			}
		})
	}
}

// A server that always waits for an answer cannot extend a request without limit.
//
// Requirement: CAN-14
func TestInputRequestsPauseTheTimeoutForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		ctx := context.Background()
		ask := func(id int64) {
			_ = server.Write(ctx, &jsonrpc.Message{ID: jsonrpc.IntID(id), Method: "roots/list"})
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
					_ = server.Write(ctx, &jsonrpc.Message{ID: m.ID, Error: &jsonrpc.Error{Code: -32601, Message: "?"}})
				case m.Method == "initialize":
					_ = server.Write(ctx, &jsonrpc.Message{ID: m.ID, Result: json.RawMessage(initialized)})
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
		opts := &mcp.ClientOptions{
			Logger: discardLogger(), Timeout: 10 * time.Second, MaxTimeout: time.Minute, InputTimeout: 2 * time.Minute,
		}
		lock := make(chan struct{}, 1)
		opts.Roots = func(context.Context) ([]mcp.Root, error) {
			lock <- struct{}{} // sequential, so that one request always waits
			time.Sleep(5 * time.Second)
			<-lock
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
			t.Errorf("got error %v after %v, want ErrTimeout within 4m", err, took)
		}
		c.Close()
		server.Close()
		done.Wait()
		time.Sleep(time.Minute) // Roots returns
	})
}

// The requests end while the server does not read.
//
// Requirement: CAN-10
func TestEachOfManyRequestsIsCancelled(t *testing.T) {
	const calls = 500
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		received := map[string]int{}
		var served sync.WaitGroup
		served.Go(func() {
			for m, err := server.Read(context.Background()); err == nil; m, err = server.Read(context.Background()) {
				if m.Method == "server/discover" {
					_ = server.Write(context.Background(), &jsonrpc.Message{ID: m.ID, Result: json.RawMessage(discovered)})
				}
				if received[m.Method]++; received["tools/call"] == calls && received["notifications/cancelled"] == 0 {
					time.Sleep(2 * time.Second)
				}
			}
		})
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &mcp.ClientOptions{Logger: discardLogger()})
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
		if n := received["notifications/cancelled"]; n != calls {
			t.Errorf("got %d cancellations, want %d", n, calls)
		}
	})
}

// The request ends while the server does not read.
//
// Requirement: CAN-10
func TestRequestWrittenAfterItsEndIsCancelled(t *testing.T) {
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
			t.Errorf("got messages %s, want a call and its cancellation", got)
		}
	})
}

// A failingConn is a Conn whose Write writes the message and then returns an error once fail is
// set.
type failingConn struct {
	mcp.Conn
	fail atomic.Bool
}

func (f *failingConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	err := f.Conn.Write(ctx, m)
	if f.fail.Load() {
		return errors.New("flush: the network is unreachable")
	}
	return err
}

// Requirement: STDIO-17
func TestUnknownWriteErrorMayHaveRun(t *testing.T) {
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
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(f), &mcp.ClientOptions{Logger: discardLogger()})
	if err != nil {
		t.Fatal(err)
	}
	f.fail.Store(true)
	_, err = c.CallTool(t.Context(), "x", nil)
	<-ran
	if !mayHaveRun(t, err) {
		t.Errorf("got error %v without MayHaveRun of a call that has run", err)
	}
	c.Close()
	served.Wait()
}

func TestCloseAndEndOfRequestsDoNotRace(t *testing.T) {
	for range 100 {
		transport, _ := serveResponses(t, responseTable{"server/discover": discovered})
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
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

// After a partial write the server could not read further messages.
//
// Requirement: STDIO-17
func TestPartialWriteEndsTheStream(t *testing.T) {
	client, server := net.Pipe()
	lines := bufio.NewReader(server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var served sync.WaitGroup
	callEnded, streamEnded := make(chan struct{}), make(chan error, 1)
	served.Go(func() {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(server, `{"jsonrpc":"2.0","id":1,"result":%s}`+"\n", discovered)
		_, _ = io.ReadFull(lines, make([]byte, 10)) // the first bytes of a longer message
		cancel()
		<-callEnded
		_, err := io.Copy(io.Discard, lines)
		streamEnded <- err
	})
	transport := mcp.NewConnTransport(mcp.NewStreamConn(client, client, nil))
	c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(ctx, strings.Repeat("x", 1<<20), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(callEnded)
	for range 2 {
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, mcp.ErrDisconnected) || mayHaveRun(t, err) {
			t.Errorf("got error %v, want ErrDisconnected of a call that has not run", err)
		}
	}
	<-streamEnded // before Close
	c.Close()
	served.Wait()
}
