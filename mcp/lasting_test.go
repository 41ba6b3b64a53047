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
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// extended are the options of a client of an extension, whose notifications no schema describes.
var extended = &mcp.ClientOptions{Extensions: map[string]json.RawMessage{"com.example/x": []byte("{}")}}

// streamServer serves events/stream with a notification, another an hour later, and a result after
// the second hour.
func streamServer(opts *mcp.ServerOptions) *mcp.Server {
	s := mcp.NewServer("stream", "1", opts)
	mcp.AddTool(s, &mcp.Tool{Name: "ping"}, func(context.Context, struct{}) (string, error) { return "pong", nil })
	s.HandleMethod("events/stream", mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		for i := range 2 {
			params := fmt.Appendf(nil, `{"n":%d,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, i, req.ID)
			if err := req.Notify(ctx, "notifications/events/event", params); err != nil {
				return nil, err
			}
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return mcp.EmptyResult{}, nil
	}))
	return s
}

// lasting calls events/stream and returns the received notifications.
func lasting(ctx context.Context, c *mcp.Client) (got []string, err error) {
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{
		Timeout: time.Minute,
		Notify: func(method string, params json.RawMessage) {
			n, _, _ := strings.Cut(string(params), ",")
			got = append(got, method+" "+n)
		},
	})
	_, err = c.Do(ctx, "events/stream", nil)
	return got, err
}

func TestCallThatLastsReceivesItsNotifications(t *testing.T) {
	const want = `[notifications/events/event {"n":0 notifications/events/event {"n":1]`
	s := streamServer(nil)
	mcptest.RunClient(t, s, extended, func(t *testing.T, c *mcp.Client) {
		if c.Revision() != mcptest.Modern {
			t.Skip("sessions relate no notification to a request")
		}
		got, err := lasting(t.Context(), c)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}

// Calls that last do not count as requests in progress, and end with their context.
func TestCallThatLastsIsExemptFromLimits(t *testing.T) {
	s := streamServer(&mcp.ServerOptions{MaxInFlight: 1})
	mcptest.RunClient(t, s, extended, func(t *testing.T, c *mcp.Client) {
		if c.Revision() != mcptest.Modern {
			t.Skip("sessions have no streams of events")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		const streams = 2
		for range streams {
			go func() {
				_, err := lasting(ctx, c)
				done <- err
			}()
		}
		synctest.Wait()
		if _, err := c.CallTool(t.Context(), "ping", nil); err != nil {
			t.Error(err)
		}
		enough := errors.New("enough")
		cancel(enough)
		for range streams {
			if err := <-done; !errors.Is(err, enough) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestForwardRelaysCallThatLasts(t *testing.T) {
	s := streamServer(nil)
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		upstream := mcptest.Dial(t, s, c.Combination, nil)
		relay := mcptest.Connect(t, mcp.Forward(upstream), c.Combination, &mcptest.Options{
			Timeout: 3 * time.Hour, Extension: mcptest.Extension{Topics: map[string]string{"notifications/events/event": ""}}})
		p := relay.SendAs(jsonrpc.StringID("own"), "events/stream", nil)
		if m := p.Wait(); m.Error != nil || !strings.Contains(string(m.Result), `/subscriptionId":"own"`) {
			t.Errorf("got result %s, error %v", m.Result, m.Error)
		}
		for i, m := range relay.Await(2, "notifications/events/event") {
			if want := fmt.Sprintf(`"n":%d`, i); !strings.Contains(string(m.Params), want) ||
				!strings.Contains(string(m.Params), `/subscriptionId":"own"`) {
				t.Errorf("got params %s, want %s", m.Params, want)
			}
		}
	})
}

// A forwarded stream whose client is too slow ends with an error at the first loss: a later cursor would hide it.
func TestForwardedStreamEndsAtFirstLoss(t *testing.T) {
	const sent = 10_100 // more than the queue holds
	s := mcp.NewServer("stream", "1", nil)
	var first chan struct{} // closed when the caller receives the first notification: a full queue would lose it
	s.HandleMethod("events/stream", mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		for i := range sent {
			if i == 1 {
				<-first
			}
			if err := req.Notify(ctx, "notifications/events/event", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
				return nil, err
			}
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}))
	for name, notify := range map[string]func(context.Context) error{
		"slow": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"gone": func(context.Context) error { return errors.New("gone") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				received := 0
				first = make(chan struct{})
				_, err = mcp.Forward(c).ServeMCP(t.Context(), &mcp.Request{Method: "events/stream",
					Notify: func(ctx context.Context, _ string, _ json.RawMessage) error {
						if received++; received == 1 {
							close(first)
						}
						return notify(ctx)
					}})
				synctest.Wait()
				if err == nil || received != 1 {
					t.Errorf("got error %v after %d notifications, want an error after the first", err, received)
				}
			})
		})
	}
}

// Forward passes on events as ForwardAs does, but no webhooks: the server would not tell its callers apart.
func TestForwardRefusesWebhooks(t *testing.T) {
	s, reached := streamServer(nil), 0
	for _, method := range []string{"events/subscribe", "events/unsubscribe"} {
		s.HandleMethod(method, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			reached++
			return mcp.EmptyResult{}, nil
		}))
	}
	synctest.Test(t, func(t *testing.T) {
		c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f, received := mcp.Forward(c), 0
		notify := func(context.Context, string, json.RawMessage) error { received++; return nil }
		for _, principal := range []string{"bob", "eve"} {
			for _, method := range []string{"events/subscribe", "events/unsubscribe"} {
				_, err := f.ServeMCP(t.Context(), &mcp.Request{Method: method})
				_, as := f.ForwardAs(t.Context(), &mcp.Request{Method: method},
					&driver.ForwardOptions{Principal: principal})
				for _, err := range []error{err, as} {
					if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != mcp.CodeMethodNotFound || reached > 0 {
						t.Errorf("%s: got %v, %d requests at the server", method, err, reached)
					}
				}
			}
		}
		_, err = f.ForwardAs(t.Context(), &mcp.Request{Method: "events/stream", Notify: notify}, &driver.ForwardOptions{})
		if err != nil || received != 2 {
			t.Errorf("got %d notifications, error %v, want 2", received, err)
		}
	})
}

// An extension declares a capability of its own, which clients see and Forward relays.
func TestOtherCapabilities(t *testing.T) {
	s := mcp.NewServer("other", "1", &mcp.ServerOptions{Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			res, err := next.ServeMCP(ctx, req)
			if d, ok := res.(*mcp.DiscoverResult); ok {
				d.Capabilities.Other = map[string]json.RawMessage{"events": json.RawMessage(`{"listChanged":true}`)}
			}
			return res, err
		})
	}}})
	mcptest.RunClient(t, s, extended,
		func(t *testing.T, c *mcp.Client) {
			relay, err := mcp.Connect(t.Context(), mcp.InMemory(mcp.Forward(c)), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Close()
			for _, c := range []*mcp.Client{c, relay} {
				if got := string(c.Capabilities().Other["events"]); got != `{"listChanged":true}` {
					t.Errorf("got capability %q", got)
				}
			}
		})
}
