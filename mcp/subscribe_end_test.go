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

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// things adds a topic to a server. It gives what tells of a change, and counts how often the topic was closed.
func things(s *mcp.Server, opened func(ctx context.Context)) (change func(string), closed *int) {
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

// However a subscription ends, its client is told of it as it should be, and nothing is left of it.
func TestSUB_WaysToEnd(t *testing.T) {
	gone := errors.New("the stream is gone")
	for name, test := range map[string]struct {
		refused string // what cannot be sent
		cause   error  // of the end of the call
		ok      bool
	}{
		"the acknowledgement cannot be sent": {refused: acknowledged},
		"a change cannot be sent":            {refused: "notifications/things"},
		"the client is gone":                 {cause: mcp.ErrDisconnected},
		"the client has cancelled":           {cause: mcp.ErrCancelled},
		"the server ends":                    {cause: mcp.ErrShutdown, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := changingServer(t, nil)
				change, closed := things(s, func(context.Context) {})
				told := 0
				req := listening(t, `{"toolsListChanged":true,"things":true}`, func(n string) error {
					told++
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
						t.Errorf("it ends with %v", err)
					}
				default:
					t.Error("it has not ended")
				}
				before := told
				give(s, "again", "x")
				time.Sleep(time.Second)
				if *closed != 1 || told != before {
					t.Errorf("the topic was closed %d times, %d changes were told of after the end", *closed, told-before)
				}
				cancel(nil)
			})
		})
	}
}

// A note of progress that waits for its time is sent before the end, and none after it.
func TestPROG_NoneIsLeftOfASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 1005 // more than is sent at once
		s := changingServer(t, nil)
		things(s, func(ctx context.Context) {
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
			t.Errorf("%d notes were sent, %d of them after the end, the last is %s", len(notes), len(notes)-before, notes[len(notes)-1])
		}
	})
}

// A failingWrapper is a transport's own handler, and fails when the subscription is open.
type failingWrapper struct {
	*mcp.Server
	err error
}

func (w failingWrapper) Unwrap(wire.ForTransports) mcp.Handler { return w.Server }

func (w failingWrapper) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if _, err := w.Server.ServeMCP(ctx, req); err != nil {
		return nil, err
	}
	return nil, w.err
}

func TestSUB_ATransportThatFailsEndsItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		_, closed := things(s, func(context.Context) {})
		told := 0
		req := listening(t, `{"toolsListChanged":true,"things":true}`, func(string) error { told++; return nil })
		want := mcp.Errorf(mcp.CodeBusy, "no room")
		if _, err := mcp.AppendResponse(nil, t.Context(), failingWrapper{s, want}, req); err == nil || err.Code != mcp.CodeBusy {
			t.Errorf("got %v, want %v", err, want)
		}
		give(s, "again", "x")
		time.Sleep(time.Second)
		if told != 1 || *closed != 1 {
			t.Errorf("%d notifications were sent, the topic was closed %d times; want 1 of each", told, *closed)
		}
	})
}
