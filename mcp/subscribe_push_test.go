package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Middleware and wrapping handlers see a subscription as one call that lasts until its end.
func TestMiddlewareSeesASubscriptionAsOneCall(t *testing.T) {
	for name, between := range map[string]func(s *mcp.Server, note mcp.Middleware) mcp.Handler{
		"middleware": func(s *mcp.Server, note mcp.Middleware) mcp.Handler {
			s.Use(note)
			return s
		},
		"a handler": func(s *mcp.Server, note mcp.Middleware) mcp.Handler { return note(s) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := changingServer(t, nil)
				var begun, ended bool
				h := between(s, func(next mcp.Handler) mcp.Handler {
					return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
						begun = true
						res, err := next.ServeMCP(ctx, req)
						ended = true
						if _, ok := res.(mcp.EmptyResult); !ok || ctx.Err() == nil {
							t.Errorf("got result %T, want EmptyResult after the end of the context", res)
						}
						return res, err
					})
				})
				var got []string
				req := listenRequest(t, `{"toolsListChanged":true}`, func(n string) error {
					got = append(got, n[:strings.IndexByte(n, '{')])
					return nil
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				answer := make(chan string)
				go func() {
					body, _ := mcp.AppendResponse(nil, ctx, h, req)
					answer <- string(body)
				}()
				synctest.Wait()
				addValueTool(s, "more", "x").Remove()
				time.Sleep(time.Second)
				synctest.Wait()
				if !begun || ended || len(got) != 2 {
					t.Errorf("got begun %t, ended %t, notifications %q; want an open subscription with 2", begun, ended, got)
				}
				cancel(mcp.ErrShutdown)
				if body := <-answer; !ended || !strings.Contains(body, `"result"`) || !strings.Contains(body, "subscriptionId") {
					t.Errorf("got ended %t, response %s; want a result", ended, body)
				}
			})
		})
	}
}

// A panic while a notification is sent ends only that subscription.
func TestPanicEndsOneSubscription(t *testing.T) {
	for name, after := range map[string]int{"of the acknowledgement": 0, "of a change": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := changingServer(t, nil)
				stopped := 0
				s.AddTopic("things", mcp.Topic{
					Method: "notifications/things",
					Open: func(context.Context, *mcp.Request, json.RawMessage, func(string)) (any, func(), error) {
						return true, func() { stopped++ }, nil
					},
					Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) { return nil, nil },
				})
				sent := 0
				req := listenRequest(t, `{"toolsListChanged":true,"things":true}`, func(string) error {
					if sent++; sent > after {
						panic("on purpose")
					}
					return nil
				})
				failure := make(chan *mcp.Error)
				go func() {
					_, err := mcp.AppendResponse(nil, t.Context(), s, req)
					failure <- err
				}()
				synctest.Wait()
				if after > 0 {
					addValueTool(s, "more", "x")
				}
				var err error = <-failure
				var e *mcp.Error
				if !errors.As(err, &e) || e.Code != mcp.CodeInternalError || strings.Contains(string(e.Data), "on purpose") {
					t.Errorf("got %v, want an internal error without details", err)
				}
				addValueTool(s, "again", "x")
				time.Sleep(time.Second)
				if sent != after+1 || stopped != 1 {
					t.Errorf("got %d notifications and %d stops, want %d and 1", sent, stopped, after+1)
				}
			})
		})
	}
}

// A topic may send progress while it is subscribed to.
func TestTopicsMaySendProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		var change func(string)
		s.AddTopic("things", mcp.Topic{
			Method: "notifications/things",
			Open: func(ctx context.Context, _ *mcp.Request, _ json.RawMessage, changed func(string)) (any, func(), error) {
				change = changed
				mcp.Progress(ctx, 1, 3, "")
				return true, nil, nil
			},
			Params: func(ctx context.Context, _ *mcp.Request, _ string) (json.RawMessage, error) {
				mcp.Progress(ctx, 2, 3, "")
				return json.RawMessage(`{}`), nil
			},
		})
		var got []string
		params := `{"notifications":{"things":true},"_meta":` + strings.Replace(fmt.Sprintf(modernMeta, `{}`), "{", `{"progressToken":"p",`, 1) + `}`
		req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "subscriptions/listen", Params: []byte(params)})
		if err != nil {
			t.Fatal(err)
		}
		req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
			got = append(got, method)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { mcp.AppendResponse(nil, ctx, s, req); close(done) }()
		synctest.Wait()
		change("a")
		synctest.Wait()
		cancel()
		<-done
		n := 0
		for _, m := range got {
			if m == "notifications/progress" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("got %d progress notifications, want 2: %q", n, got)
		}
	})
}

// A wrappedServer has an Unwrap method that is unrelated to the one of transports.
type wrappedServer struct {
	*mcp.Server
	ended chan struct{}
}

func (g wrappedServer) Unwrap() mcp.Handler { return g.Server }
func (g wrappedServer) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	defer close(g.ended)
	return g.Server.ServeMCP(ctx, req)
}

func TestHandlerWithUnwrapSeesASubscriptionAsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		g := wrappedServer{s, make(chan struct{})}
		req := listenRequest(t, `{"toolsListChanged":true}`, func(string) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { mcp.AppendResponse(nil, ctx, g, req); close(done) }()
		synctest.Wait()
		select {
		case <-g.ended:
			t.Error("the handler returned while the subscription was open")
		default:
		}
		cancel()
		<-done
	})
}
