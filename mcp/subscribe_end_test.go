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

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// addThings adds the topic "things" to a server. It returns a function that reports a change and a count of closes.
func addThings(s *mcp.Server, opened func(ctx context.Context)) (change func(string), closed *int) {
	closed = new(int)
	var changed func(string)
	s.AddTopic("things", mcp.Topic{
		Method: "notifications/things",
		Open: func(ctx context.Context, _ *mcp.Request, _ json.RawMessage, c func(string)) (any, func(), error) {
			changed = c
			opened(ctx)
			return true, func() { *closed++ }, nil
		},
		Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) {
			return json.RawMessage(`{}`), nil
		},
	})
	return func(key string) { changed(key) }, closed
}

// However a subscription ends, its topics are closed once and nothing is sent afterwards.
//
// Requirement: SUB-11
func TestEndOfASubscription(t *testing.T) {
	gone := errors.New("the stream is closed")
	for name, test := range map[string]struct {
		refused string // notification that cannot be sent
		cause   error  // of the end of the call
		ok      bool
	}{
		"the acknowledgement cannot be sent": {refused: acknowledged},
		"a change cannot be sent":            {refused: "notifications/things"},
		"the client disconnects":             {cause: mcp.ErrDisconnected},
		"the client cancels":                 {cause: mcp.ErrCancelled},
		"the server ends":                    {cause: mcp.ErrShutdown, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := changingServer(t, nil)
				change, closed := addThings(s, func(context.Context) {})
				sent := 0
				req := listenRequest(t, `{"toolsListChanged":true,"things":true}`, func(n string) error {
					sent++
					if test.refused != "" && strings.HasPrefix(n, test.refused) {
						return gone
					}
					return nil
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				failure := make(chan *mcp.Error, 1)
				go func() {
					_, err := mcp.AppendResponse(nil, ctx, s, req)
					failure <- err
				}()
				synctest.Wait()
				if test.refused != acknowledged {
					change("a")
					synctest.Wait()
				}
				if test.cause != nil {
					cancel(test.cause)
				}
				time.Sleep(time.Second)
				select {
				case err := <-failure:
					if (err == nil) != test.ok {
						t.Errorf("got error %v, want success %v", err, test.ok)
					}
				default:
					t.Error("the subscription has not ended")
				}
				before := sent
				addValueTool(s, "again", "x")
				time.Sleep(time.Second)
				if *closed != 1 || sent != before {
					t.Errorf("got %d closes and %d notifications after the end, want 1 and 0", *closed, sent-before)
				}
				cancel(nil)
			})
		})
	}
}

// Delayed progress is sent before the subscription ends, and none after it.
//
// Requirement: PROG-04
func TestDelayedProgressIsSentBeforeASubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 1005 // more than is sent at once
		s := changingServer(t, nil)
		addThings(s, func(ctx context.Context) {
			for n := range last {
				mcp.Progress(ctx, float64(n+1), 0, "")
			}
		})
		var notes []string
		meta := strings.Replace(fmt.Sprintf(modernMeta, `{}`), "{", `{"progressToken":"p",`, 1)
		req := modernRequest(t, nil, "subscriptions/listen", object{"_meta": json.RawMessage(meta), "notifications": object{"things": true}})
		req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
			if method == "notifications/progress" {
				notes = append(notes, string(params))
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { mcp.AppendResponse(nil, ctx, s, req); close(done) }()
		synctest.Wait()
		cancel()
		<-done
		before := len(notes)
		time.Sleep(time.Minute)
		if len(notes) != before || before == 0 || !strings.Contains(notes[before-1], `"progress":1005`) {
			t.Errorf("got %d notifications, %d of them after the end, the last %s; want 1005 last and none after the end",
				len(notes), len(notes)-before, notes[len(notes)-1])
		}
	})
}

// A failingWrapper is the handler of a transport that fails after the subscription has been opened.
type failingWrapper struct {
	*mcp.Server
	err error
}

func (w failingWrapper) Unwrap(driver.Wrapped) mcp.Handler { return w.Server }

func (w failingWrapper) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if _, err := w.Server.ServeMCP(ctx, req); err != nil {
		return nil, err
	}
	return nil, w.err
}

func TestSubscriptionEndsWhenItsTransportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		_, closed := addThings(s, func(context.Context) {})
		sent := 0
		req := listenRequest(t, `{"toolsListChanged":true,"things":true}`, func(string) error { sent++; return nil })
		want := mcp.Errorf(mcp.CodeBusy, "no room")
		if _, err := mcp.AppendResponse(nil, t.Context(), failingWrapper{s, want}, req); err == nil || err.Code != mcp.CodeBusy {
			t.Errorf("got %v, want %v", err, want)
		}
		addValueTool(s, "again", "x")
		time.Sleep(time.Second)
		if sent != 1 || *closed != 1 {
			t.Errorf("got %d notifications and %d closes, want 1 of each", sent, *closed)
		}
	})
}
