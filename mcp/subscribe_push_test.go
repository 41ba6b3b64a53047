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

// Whoever stands between a transport and what a server does sees a subscription as one call.
func TestSUB_WhoeverIsInBetweenSeesAWholeSubscription(t *testing.T) {
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
							t.Errorf("it ended with %T", res)
						}
						return res, err
					})
				})
				var got []string
				req := listening(t, `{"toolsListChanged":true}`, func(n string) error {
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
				give(s, "more", "x").Remove()
				time.Sleep(time.Second)
				synctest.Wait()
				if !begun || ended || len(got) != 2 {
					t.Errorf("begun %t, ended %t, told %q", begun, ended, got)
				}
				cancel(mcp.ErrShutdown)
				if body := <-answer; !ended || !strings.Contains(body, `"result"`) || !strings.Contains(body, "subscriptionId") {
					t.Errorf("ended %t, answer %s", ended, body)
				}
			})
		})
	}
}

// A panic ends one subscription, whenever it happens, and leaves nothing behind.
func TestSUB_APanicEndsOneSubscription(t *testing.T) {
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
				told := 0
				req := listening(t, `{"toolsListChanged":true,"things":true}`, func(string) error {
					if told++; told > after {
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
					give(s, "more", "x")
				}
				var err error = <-failure
				var e *mcp.Error
				if !errors.As(err, &e) || e.Code != mcp.CodeInternalError || strings.Contains(string(e.Data), "on purpose") {
					t.Errorf("got %v", err)
				}
				give(s, "again", "x")
				time.Sleep(time.Second)
				if told != after+1 || stopped != 1 {
					t.Errorf("told %d times, stopped %d times", told, stopped)
				}
			})
		})
	}
}

// A topic may tell of progress for as long as it is subscribed to.
func TestPROG_ATopicTellsOfProgress(t *testing.T) {
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
		req, err := mcp.NewRequest(jsonrpc.NewRequest(jsonrpc.IntID(1), "subscriptions/listen", []byte(params)))
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
			t.Errorf("progress told %d times, want 2: %q", n, got)
		}
	})
}

// A gated has a method of a common name, and means nothing by it.
type gated struct {
	*mcp.Server
	ended chan struct{}
}

func (g gated) Unwrap() mcp.Handler { return g.Server }
func (g gated) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	defer close(g.ended)
	return g.Server.ServeMCP(ctx, req)
}

func TestSUB_AHandlerInBetweenSeesAWholeSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		g := gated{s, make(chan struct{})}
		req := listening(t, `{"toolsListChanged":true}`, func(string) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { mcp.AppendResponse(nil, ctx, g, req); close(done) }()
		synctest.Wait()
		select {
		case <-g.ended:
			t.Error("the user's handler was left while the subscription is open")
		default:
		}
		cancel()
		<-done
	})
}
