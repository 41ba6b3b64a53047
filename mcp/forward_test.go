package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// forwarded runs body with a client of a Handler that forwards to a client of s.
func forwarded(t *testing.T, s mcp.Handler, on, upstream mcptest.Combination, opts *mcptest.Options,
	body func(t *testing.T, c *mcptest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // until pending timers of s have fired
		c := mcptest.Dial(t, s, upstream, &mcp.ClientOptions{ForwardInput: true})
		body(t, mcptest.Connect(t, mcp.Forward(c), on, opts))
	})
}

// comparable reports whether a feature looks the same through an upstream connection of a revision. One that is
// older has fewer features; the server chooses by its revision how to report wrong arguments; and a
// server of a session learns only from the refusal of its question what the client does not support.
func comparable(feature, revision, upstream string) bool {
	switch feature {
	case "tools-call-wrong-arguments":
		return upstream == revision || upstream > revision && revision >= "2025-11-25"
	case "elicitation":
		return upstream == mcptest.Modern || upstream >= revision && revision >= "2025-06-18"
	case "elicitation-url":
		return upstream == mcptest.Modern || upstream >= revision && revision >= "2025-11-25"
	}
	return upstream >= revision
}

// Clients of every revision see a server of a newer or of the same revision through Forward as they see it
// directly.
func TestForwardedTranscriptsEqualDirectOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	servers := map[bool]*mcp.Server{true: transcriptServer(t, 5), false: transcriptServer(t, 0)}
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			s := servers[x.name == "pagination"]
			for _, on := range mcptest.Combinations() {
				var direct string
				run := func(t *testing.T, c *mcptest.Client) string {
					opening := len(c.Transcript())
					x.run(t, s, c)
					return c.Transcript()[opening:]
				}
				mcptest.RunOn(t, s, []mcptest.Combination{on}, &x.opts, func(t *testing.T, c *mcptest.Client) {
					direct = run(t, c)
				})
				for _, revision := range mcptest.Revisions() {
					upstream := mcptest.Combination{Transport: on.Transport, Revision: revision}
					t.Run(on.String()+" to "+revision, func(t *testing.T) {
						forwarded(t, s, on, upstream, &x.opts, func(t *testing.T, c *mcptest.Client) {
							got := run(t, c)
							if comparable(x.name, on.Revision, revision) && got != direct {
								t.Errorf("forwarded:\n%s\nwant:\n%s", got, direct)
							}
						})
					})
				}
			}
		})
	}
}

// crossed runs body for every revision of the client with every revision of the server.
func crossed(t *testing.T, s mcp.Handler, opts *mcptest.Options,
	body func(t *testing.T, c *mcptest.Client, upstream mcptest.Combination)) {
	t.Helper()
	for _, on := range mcptest.Combinations() {
		for _, revision := range mcptest.Revisions() {
			upstream := mcptest.Combination{Transport: on.Transport, Revision: revision}
			t.Run(on.String()+" to "+revision, func(t *testing.T) {
				forwarded(t, s, on, upstream, opts, func(t *testing.T, c *mcptest.Client) { body(t, c, upstream) })
			})
		}
	}
}

func TestForwardKeepsMetaAndErrors(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "trace", func(ctx context.Context) (string, error) {
		parent, _ := mcp.RequestFrom(ctx).Meta("traceparent")
		own, _ := mcp.RequestFrom(ctx).Meta("com.example/own")
		return string(parent) + string(own), nil
	})
	addTool(s, "refuse", func(context.Context) (string, error) {
		return "", &mcp.Error{Code: -31000, Message: "no", Data: json.RawMessage(`{"a":1}`)}
	})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	opts := &mcptest.Options{Capabilities: object{"extensions": object{"com.example/x": object{}}}}
	crossed(t, s, opts, func(t *testing.T, c *mcptest.Client, _ mcptest.Combination) {
		got := decode[toolResult](t, c.Call("tools/call", object{"name": "trace",
			"_meta": object{"traceparent": parent, "com.example/own": object{"x": 1}}}))
		if want := `"` + parent + `"{"x":1}`; got.text() != want {
			t.Errorf("_meta: got %s, want %s", got.text(), want)
		}
		_, err := c.Try("tools/call", object{"name": "refuse"})
		if err == nil || err.Code != -31000 || err.Message != "no" || string(err.Data) != `{"a":1}` {
			t.Errorf("error: got %+v, want that of the server", err)
		}
	})
}

// A cancellation reaches the server, also while its question is with the client.
func TestForwardCancels(t *testing.T) {
	cancelled := 0
	s := newServer(t, nil)
	addTool(s, "wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		cancelled++
		return "", ctx.Err()
	})
	for _, on := range mcptest.Combinations() {
		for _, revision := range mcptest.Revisions() {
			t.Run(on.String()+" to "+revision, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					before := cancelled
					upstream := mcptest.Dial(t, s, mcptest.Combination{Transport: on.Transport, Revision: revision}, nil)
					c := mcptest.Dial(t, mcp.Forward(upstream), on, nil)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := c.CallTool(ctx, "wait", nil); err == nil {
						t.Error("got no error, want the end of the context")
					}
					if synctest.Wait(); cancelled != before+1 {
						t.Errorf("%d calls of the server were cancelled, want 1", cancelled-before)
					}
				})
			})
		}
	}
}

// A server that does not respond, or is gone, is an error with a code, and not an endless wait.
func TestForwardReportsServerWithoutResponse(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "hang", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on := mcptest.Combination{Transport: mcptest.Stdio, Revision: revision}
				upstream := mcptest.Dial(t, s, on, &mcp.ClientOptions{Timeout: time.Second})
				c := mcptest.Connect(t, mcp.Forward(upstream), on, nil)
				_, err := c.Try("tools/call", object{"name": "hang"})
				wantCode(t, "server without a response", err, mcp.CodeInternalError)
				if err := upstream.Close(); err != nil {
					t.Error(err)
				}
				_, err = c.Try("tools/list", nil)
				wantCode(t, "closed client", err, mcp.CodeInternalError)
			})
		})
	}
}

// A request that has asked has run in part, also if its answer cannot be sent.
func TestForwardSaysThatARequestThatAskedMayHaveRun(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "ask", func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "Which word?", nil) })
	for _, up := range mcptest.Combinations() {
		for _, down := range mcptest.Combinations() {
			if !up.Since("2025-06-18") || !down.Since("2025-06-18") {
				continue // elicitation
			}
			t.Run(up.String()+" to "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					upstream := mcptest.Dial(t, s, up, &mcp.ClientOptions{ForwardInput: true})
					c := mcptest.Dial(t, mcp.Forward(upstream), down, &mcp.ClientOptions{
						Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
							_ = upstream.Close() // an error is that of the call
							return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"x"}`)}, nil
						}})
					_, err := c.CallTool(t.Context(), "ask", nil)
					if err == nil || !strings.Contains(err.Error(), "may have run") {
						t.Errorf("got %v, want an error that says that the request may have run", err)
					}
				})
			})
		}
	}
}

// In a session, nothing relates an input request to a client request. Input requests are refused
// once two clients have used the session, even after the requests of the first client have ended.
func TestForwardRefusesQuestionOfSessionWithTwoClients(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "wait", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		yes, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(yes), err
	})
	synctest.Test(t, func(t *testing.T) {
		upstream := mcptest.Dial(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: "2025-11-25"},
			&mcp.ClientOptions{ForwardInput: true})
		h := mcp.Forward(upstream)
		dial := func(name string, asked *int) *mcp.Client {
			return mcptest.Dial(t, h, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern},
				&mcp.ClientOptions{Info: mcp.Implementation{Name: name, Version: "1"},
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						*asked++
						return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
					}})
		}
		var first, second int
		one, two := dial("one", &first), dial("two", &second)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = one.CallTool(ctx, "wait", nil) }()
		synctest.Wait()
		if res, err := two.CallTool(t.Context(), "ask", nil); err != nil || !res.IsError || first+second != 0 {
			t.Errorf("got %+v, %v and %d questions, want a failed call and none", res, err, first+second)
		}
		cancel()
		synctest.Wait()
		if res, err := two.CallTool(t.Context(), "ask", nil); err != nil || !res.IsError || first+second != 0 {
			t.Errorf("after the first request: got %+v, %v and %d input requests, want a failed call and 0", res, err,
				first+second)
		}
	})
}
