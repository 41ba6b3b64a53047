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

// A rawServer answers lines with lines, whatever they are.
type rawServer struct {
	t     *testing.T
	lines *bufio.Reader
	out   io.Writer
}

// next returns the next message of the client.
func (s *rawServer) next() (id, method string) {
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
	return string(m.ID), m.Method
}

func (s *rawServer) send(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

const noContent = `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`

// onRaw runs a test with a client of a server that says what the test wants.
func withRawServer(t *testing.T, opts *mcp.ClientOptions, serve func(s *rawServer), test func(t *testing.T, c *mcp.Client)) {
	synctest.Test(t, func(t *testing.T) {
		clientReads, serverWrites := io.Pipe()
		serverReads, clientWrites := io.Pipe()
		s := &rawServer{t, bufio.NewReader(serverReads), serverWrites}
		var done sync.WaitGroup
		done.Go(func() {
			id, _ := s.next()
			s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, discovered)
			serve(s)
			for method := "?"; method != ""; {
				_, method = s.next() // so that the client can write until it closes
			}
		})
		defer done.Wait()
		full := mcp.ClientOptions{}
		if opts != nil {
			full = *opts
		}
		full.Logger = quiet()
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(clientReads, clientWrites, &mcp.StreamConnOptions{MaxMessage: 1 << 20})), &full)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, c)
	})
}

// What a server says besides the answer costs it nothing but the line.
func TestR7_3_13_OnlyTheAnswerIsTheAnswer(t *testing.T) {
	noise := map[string]string{
		"garbage":                 `Debugger listening on ws://127.0.0.1`,
		"half a message":          `{"jsonrpc":"2.0","id":`,
		"an unknown id":           `{"jsonrpc":"2.0","id":99,"result":{}}`,
		"the id as a string":      `{"jsonrpc":"2.0","id":"2","result":{}}`,
		"the id as a fraction":    `{"jsonrpc":"2.0","id":2.0,"result":{"content":{}}}`,
		"a request":               `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`,
		"an unknown notification": `{"jsonrpc":"2.0","method":"notifications/surprise"}`,
		"progress for nobody":     `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":1}}`,
		"a batch":                 `[{"jsonrpc":"2.0","id":98,"result":{}}]`,
		"nothing":                 ``,
		"a byte order mark":       "\ufeff{}",
	}
	for name, line := range noise {
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
						t.Errorf("got %v, %v", r, err)
					}
				}
			})
		})
	}
}

// A response that cannot be read ends its request at once, and no other.
func TestR7_2_AResponseThatIsRefusedIsATypedError(t *testing.T) {
	for name, line := range map[string]string{
		"a duplicate key":     `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[]}}`,
		"result and error":    `{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`,
		"bad UTF-8":           `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + "\xff" + `"}]}}`,
		"too deep":            `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
		"too long":            `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}}`,
		"an error without it": `{"jsonrpc":"2.0","id":%s,"error":{}}`,
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
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

// A server that is silent, or deaf, holds nobody up beyond the time that is given.
func TestCAN14_SilentAndDeafServers(t *testing.T) {
	for name, serve := range map[string]func(s *rawServer){
		"silent": func(s *rawServer) {
			for method := "?"; method != ""; {
				_, method = s.next()
			}
		},
		"deaf": func(s *rawServer) { time.Sleep(time.Hour) },
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
					if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(fmt.Sprint(err), "refused") || took > 2100*time.Millisecond {
						t.Errorf("after %v: %v", took, err)
					}
				}
			})
		})
	}
}

// A flood of notifications costs bounded memory, and the answer still comes.
func TestR7_3_12_FloodsAreBounded(t *testing.T) {
	const flood = 50_000
	seen := 0
	slow := func(mcp.ProgressUpdate) {
		if seen++; seen == 1 {
			time.Sleep(time.Minute)
		}
	}
	withRawServer(t, nil, func(s *rawServer) {
		id, _ := s.next()
		for i := range flood {
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
	if seen < 10_000 || seen > flood {
		t.Errorf("%d notes were taken", seen)
	}
}

// A request that is given up just before the client closes is still cancelled at the server.
func TestCAN12_ACancellationIsNotLostToClose(t *testing.T) {
	heard := make(chan string, 1)
	withRawServer(t, nil, func(s *rawServer) {
		s.next()
		_, method := s.next()
		heard <- method
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
	if got := <-heard; got != "notifications/cancelled" {
		t.Errorf("the server heard %q after the call", got)
	}
}
