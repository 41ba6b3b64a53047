package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A rawServer reads and writes lines without validating them.
type rawServer struct {
	t     *testing.T
	lines *bufio.Reader
	out   io.Writer
}

// next returns the next request or notification of the client.
func (s *rawServer) next() (id, method string) {
	for {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return "", ""
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(line, &m); err != nil {
			s.t.Errorf("the client sent %s", line)
		}
		if m.Method != "" || err != nil {
			return string(m.ID), m.Method
		}
	}
}

// send writes a line.
func (s *rawServer) send(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

const noContent = `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`

// withRawServer runs a test with a client of a modern server, whose messages after server/discover
// the test chooses.
func withRawServer(
	t *testing.T, opts *mcp.ClientOptions, serve func(s *rawServer), test func(t *testing.T, c *mcp.Client),
) {
	withRawConnection(t, opts, func(s *rawServer) {
		id, _ := s.next()
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, discovered)
		serve(s)
	}, test)
}

// withRawConnection is withRawServer with a server that has not responded to server/discover.
func withRawConnection(
	t *testing.T, opts *mcp.ClientOptions, serve func(s *rawServer), test func(t *testing.T, c *mcp.Client),
) {
	synctest.Test(t, func(t *testing.T) {
		clientReads, serverWrites := io.Pipe()
		serverReads, clientWrites := io.Pipe()
		s := &rawServer{t, bufio.NewReader(serverReads), serverWrites}
		var done sync.WaitGroup
		done.Go(func() {
			serve(s)
			for method := "?"; method != ""; {
				_, method = s.next() // the client can write until it closes
			}
		})
		defer done.Wait()
		full := mcp.ClientOptions{}
		if opts != nil {
			full = *opts
		}
		full.Logger = discardLogger()
		conn := mcp.NewStreamConn(clientReads, clientWrites, &mcp.StreamConnOptions{MaxMessage: 1 << 20})
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(conn), &full)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, c)
	})
}

// The server sends an unexpected line before and after each response.
func TestUnexpectedMessagesOfServersAreIgnored(t *testing.T) {
	unexpected := map[string]string{
		"text":                    `Debugger listening on ws://127.0.0.1`,
		"half a message":          `{"jsonrpc":"2.0","id":`,
		"an unknown id":           `{"jsonrpc":"2.0","id":99,"result":{}}`,
		"the id as a fraction":    `{"jsonrpc":"2.0","id":2.0,"result":{"content":{}}}`,
		"a request":               `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`,
		"an unknown notification": `{"jsonrpc":"2.0","method":"notifications/surprise"}`,
		"an unknown token": `{"jsonrpc":"2.0","method":"notifications/progress",` +
			`"params":{"progressToken":77,"progress":1}}`,
		"a batch":           `[{"jsonrpc":"2.0","id":98,"result":{}}]`,
		"an empty line":     ``,
		"a byte order mark": "\ufeff{}",
	}
	for name, line := range unexpected {
		t.Run(name, func(t *testing.T) {
			withRawServer(t, nil, func(s *rawServer) {
				for id, method := s.next(); method == "tools/call"; id, method = s.next() {
					s.send("%s", line)
					s.send(noContent, id)
					s.send("%s", line)
				}
			}, func(t *testing.T, c *mcp.Client) {
				for range 3 {
					if r, err := c.CallTool(t.Context(), "x", nil); err != nil || r.Content == nil {
						t.Errorf("got %v, %v, want a result", r, err)
					}
				}
			})
		})
	}
}

// A response that cannot be decoded ends its request at once. Other requests are not affected.
//
// Requirement: RPC-07, RPC-08, RPC-09, RPC-19
func TestInvalidResponsesAreTransportErrors(t *testing.T) {
	for name, line := range map[string]string{
		"a duplicate key": `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[]}}`,
		// Requirement: RPC-07
		"result and error": `{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`,
		// Requirement: RPC-19
		"invalid UTF-8": `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + "\xff" +
			`"}]}}`,
		"too deep": `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 70) +
			strings.Repeat("]", 70) + `}`,
		"too long": `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` +
			strings.Repeat("x", 1<<20) + `"}]}}`,
		"neither of them": `{"jsonrpc":"2.0","id":%s}`,                                // Requirement: RPC-08
		"no message":      `{"jsonrpc":"2.0","id":%s,"error":{"code":1}}`,             // Requirement: RPC-09
		"another message": `{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":5}}`, // Requirement: RPC-09
	} {
		t.Run(name, func(t *testing.T) {
			withRawServer(t, nil, func(s *rawServer) {
				id, _ := s.next()
				s.send(line, id)
				id, _ = s.next()
				s.send(noContent, id)
			}, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				_, err := c.CallTool(t.Context(), "x", nil)
				var failed *mcp.TransportError
				if !errors.As(err, &failed) || !failed.MayHaveRun || time.Since(began) != 0 {
					t.Errorf("got error %v after %v, want a TransportError with MayHaveRun at once", err,
						time.Since(began))
				}
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

// Servers that do not respond or do not read delay calls until their timeout.
//
// Requirement: CAN-14
func TestUnresponsiveServersAreTimedOut(t *testing.T) {
	for name, serve := range map[string]func(s *rawServer){
		"silent": func(s *rawServer) {
			for method := "?"; method != ""; {
				_, method = s.next()
			}
		},
		"not reading": func(s *rawServer) { time.Sleep(time.Hour) },
		"endless line": func(s *rawServer) {
			for range 1000 {
				fmt.Fprint(s.out, strings.Repeat("x", 1<<16))
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withRawServer(t, nil, serve, func(t *testing.T, c *mcp.Client) {
				for range 3 {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					_, err := c.CallTool(ctx, "x", nil)
					cancel()
					ended := errors.Is(err, context.DeadlineExceeded) || strings.Contains(fmt.Sprint(err), "refused")
					if took := time.Since(began); !ended || took > 2100*time.Millisecond {
						t.Errorf("got error %v after %v, want a deadline within 2.1s", err, took)
					}
				}
			})
		})
	}
}

// The client drops progress that its handler is too slow for, and receives the response.
//
// Requirement: PROG-05
func TestManyNotificationsAreBounded(t *testing.T) {
	const notifications = 50_000
	seen := 0
	slow := func(mcp.ProgressUpdate) {
		if seen++; seen == 1 {
			time.Sleep(time.Minute)
		}
	}
	withRawServer(t, nil, func(s *rawServer) {
		id, _ := s.next()
		for i := range notifications {
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, i)
			s.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
		}
		s.send(noContent, id)
	}, func(t *testing.T, c *mcp.Client) {
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: slow, Timeout: time.Hour})
		if _, err := c.CallTool(ctx, "x", nil); err != nil {
			t.Error(err)
		}
	})
	if seen < 10_000 || seen > notifications {
		t.Errorf("the handler got %d updates, want 10000 to %d", seen, notifications)
	}
}

// The client closes directly after a call has timed out.
//
// Requirement: CAN-10
func TestCloseSendsPendingCancellations(t *testing.T) {
	received := make(chan string, 1)
	withRawServer(t, nil, func(s *rawServer) {
		s.next()
		_, method := s.next()
		received <- method
	}, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := <-received; got != "notifications/cancelled" {
		t.Errorf("got %q after the call, want notifications/cancelled", got)
	}
}
