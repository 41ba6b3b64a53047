package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A subscriber is an open subscription that records its notifications.
type subscriber struct {
	stop context.CancelCauseFunc
	done chan struct{}
	err  error // once done is closed

	mu  sync.Mutex // guards the field below
	got []string
}

// listen opens a subscription within a bubble and returns when the client is idle.
func listen(t *testing.T, c *legacy.Client, filter string) *subscriber {
	t.Helper()
	s := &subscriber{done: make(chan struct{})}
	ctx, stop := context.WithCancelCause(t.Context())
	s.stop = stop
	go func() {
		defer close(s.done)
		result, err := c.RoundTrip(ctx, "subscriptions/listen", withEnvelope(`"notifications":`+filter, ""), s.notify)
		if result != nil {
			t.Errorf("subscriptions/listen returned the result %s, want an error", result)
		}
		s.err = err
	}()
	synctest.Wait()
	return s
}

func (s *subscriber) notify(_ context.Context, method string, params json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, strings.TrimPrefix(method, "notifications/")+" "+string(params))
	return nil
}

// wants waits until the client is idle, and compares the new notifications.
func (s *subscriber) wants(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.got); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	s.got = nil
}

// end ends the subscription and checks its error.
func (s *subscriber) end(t *testing.T) {
	t.Helper()
	s.stop(errCancelled)
	<-s.done
	if s.err != errCancelled {
		t.Errorf("the subscription ended with %v", s.err)
	}
	synctest.Wait()
}

func id(n int) string {
	return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":"listen-%d"}}`, n)
}

func acknowledged(n int, filter string) string {
	return `subscriptions/acknowledged {"notifications":` + filter + `,` + id(n)
}

func changed(c *legacy.Client, list string) {
	c.Receive(&jsonrpc.Message{Method: "notifications/" + list + "/list_changed"})
}

func updated(c *legacy.Client, uri string) {
	c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`))
}

func subscribes(uri string) string {
	return `"method":"resources/subscribe","params":{"uri":"` + uri + `"}`
}

func unsubscribes(uri string) string {
	return `"method":"resources/unsubscribe","params":{"uri":"` + uri + `"}`
}

// Requirement: SUB-03
func TestChangesInEachRevision(t *testing.T) {
	for _, version := range sessionVersions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{}
				c := open(t, clientConfig(version), s)
				const filter = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x:y"]}`
				l := listen(t, c, filter)
				l.wants(t, acknowledged(1, filter))
				s.wants(t, subscribes("x:y"))
				for _, list := range []string{"tools", "prompts", "resources"} {
					changed(c, list)
					l.wants(t, list+`/list_changed {`+id(1))
				}
				updated(c, "x:y")
				l.wants(t, `resources/updated {"uri":"x:y",`+id(1))
				l.end(t)
				s.wants(t, unsubscribes("x:y"))
				changed(c, "tools")
				updated(c, "x:y")
				l.wants(t)
				if left := c.ResourceSubscriptions(); left != 0 {
					t.Errorf("%d resource subscriptions remain, want 0", left)
				}
				c.Close()
			})
		})
	}
}

// Requirement: SUB-02, SUB-05
func TestOnlyRequestedAndDeclaredChanges(t *testing.T) {
	for _, tc := range []struct{ capabilities, filter, acknowledged string }{
		{allServerCapabilities, `{}`, `{}`},
		{allServerCapabilities, `{"toolsListChanged":false,"promptsListChanged":true}`, `{"promptsListChanged":true}`},
		{`{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true}}`,
			`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x:y"]}`,
			`{"toolsListChanged":true,"resourcesListChanged":true}`},
		{`{"resources":{"subscribe":true}}`, `{"resourcesListChanged":true,"resourceSubscriptions":["x:y","x:y"]}`, `{"resourceSubscriptions":["x:y"]}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{capabilities: tc.capabilities}
			c := open(t, clientConfig("2025-06-18"), s)
			l := listen(t, c, tc.filter)
			l.wants(t, acknowledged(1, tc.acknowledged))
			want := []string(nil)
			if strings.Contains(tc.acknowledged, "x:y") {
				want = []string{subscribes("x:y")}
			}
			s.wants(t, want...)
			for _, list := range []string{"tools", "prompts", "resources"} {
				changed(c, list)
				synctest.Wait()
				l.mu.Lock()
				if notified := l.got != nil; notified != strings.Contains(tc.acknowledged, list+"List") {
					t.Errorf("%s: a change of %s was notified: %v", tc.filter, list, notified)
				}
				l.got = nil
				l.mu.Unlock()
			}
			l.end(t)
			c.Close()
		})
	}
}

// Requirement: SUB-15
func TestInvalidListen(t *testing.T) {
	notify := func(context.Context, string, json.RawMessage) error { return nil }
	uris := func(n int, uri string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"%s%d"`, uri, i)
		}
		return `{"notifications":{"resourceSubscriptions":[` + strings.Join(all, ",") + `]}}`
	}
	for _, tc := range []struct {
		capabilities, params string
		code                 int
	}{
		{`{"tools":{},"logging":{}}`, `{"notifications":{"toolsListChanged":true}}`, -32601},
		{allServerCapabilities, `{}`, -32602},
		{allServerCapabilities, `{"notifications":[]}`, -32602},
		{allServerCapabilities, `{"notifications":{"resourceSubscriptions":[7]}}`, -32602},
		{allServerCapabilities, uris(1001, "x:"), -32602},
		{allServerCapabilities, uris(1, strings.Repeat("x", 8<<10)), -32602},
	} {
		s := &fakeServer{capabilities: tc.capabilities}
		c := open(t, clientConfig("2025-06-18"), s)
		_, err := c.RoundTrip(t.Context(), "subscriptions/listen", json.RawMessage(tc.params), notify)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != tc.code || e.Remote() {
			t.Errorf("%.100s: %v, want %d", tc.params, err, tc.code)
		}
		s.wants(t)
	}
	c := open(t, clientConfig("2025-06-18"), &fakeServer{})
	if _, err := c.RoundTrip(t.Context(), "subscriptions/listen", withEnvelope(`"notifications":{}`, ""), nil); err == nil {
		t.Error("subscriptions/listen without a notify function returned no error")
	}
}

// After missed notifications, the acknowledgement is sent again, before known changes.
//
// Requirement: SUB-11
func TestMissedChangesAreAcknowledgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, clientConfig("2025-06-18"), &fakeServer{})
		l := listen(t, c, `{"toolsListChanged":true}`)
		ack := `subscriptions/acknowledged {"notifications":{"toolsListChanged":true},` + id(1)
		l.wants(t, ack)
		c.Receive(nil)
		changed(c, "tools")
		l.wants(t, ack, `tools/list_changed {`+id(1))
		l.end(t)
		c.Close()
	})
}

// Requirement: SUB-08
func TestListenersShareASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		c := open(t, clientConfig("2025-06-18"), s)
		first := listen(t, c, `{"resourceSubscriptions":["x:a","x:b"]}`)
		second := listen(t, c, `{"resourceSubscriptions":["x:b"],"toolsListChanged":true}`)
		got := s.take()
		slices.Sort(got)
		if diff := cmp.Diff([]string{subscribes("x:a"), subscribes("x:b")}, got); diff != "" {
			t.Errorf("the server got (-want +got):\n%s", diff)
		}
		first.got, second.got = nil, nil
		for _, uri := range []string{"x:a", "x:b", "x:b"} {
			updated(c, uri)
			synctest.Wait()
		}
		changed(c, "tools")
		update := func(uri string, n int) string { return `resources/updated {"uri":"` + uri + `",` + id(n) }
		first.wants(t, update("x:a", 1), update("x:b", 1), update("x:b", 1))
		second.wants(t, update("x:b", 2), update("x:b", 2), `tools/list_changed {`+id(2))
		first.end(t)
		s.wants(t, unsubscribes("x:a"))
		third := listen(t, c, `{"resourceSubscriptions":["x:b"]}`)
		second.end(t)
		s.wants(t)
		third.end(t)
		s.wants(t, unsubscribes("x:b"))
		c.Close()
	})
}

// A subscription ends while another one begins. In either order, the server keeps the open one.
func TestConcurrentSubscribeAndUnsubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodResourcesUnsubscribe {
				<-release
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		first := listen(t, c, `{"resourceSubscriptions":["x:a"]}`)
		first.end(t) // does not wait for the server
		second := listen(t, c, `{"resourceSubscriptions":["x:a"]}`)
		s.wants(t, subscribes("x:a"), unsubscribes("x:a"))
		second.wants(t)
		updated(c, "x:a") // sent after the acknowledgement
		close(release)
		second.wants(t, acknowledged(2, `{"resourceSubscriptions":["x:a"]}`), `resources/updated {"uri":"x:a",`+id(2))
		s.wants(t, subscribes("x:a"))
		second.end(t)
		s.wants(t, unsubscribes("x:a"))
		c.Close()
	})
}

func TestUnsubscribingIsLimitedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodResourcesUnsubscribe {
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		listen(t, c, `{"resourceSubscriptions":["x:a"]}`).end(t)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if left := c.ResourceSubscriptions(); left != 0 {
			t.Errorf("%d resource subscriptions remain, want 0", left)
		}
		c.Close()
	})
}

// Requirement: SUB-06
func TestRefusedResourcesAreNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if strings.Contains(string(req.Params), "no") {
				return failWith(-32002, "no", "")(ctx, req)
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		l := listen(t, c, `{"resourceSubscriptions":["x:no","x:a"]}`)
		l.wants(t, acknowledged(1, `{"resourceSubscriptions":["x:a"]}`))
		updated(c, "x:no")
		l.wants(t)
		s.take()
		l.end(t)
		s.wants(t, unsubscribes("x:a"))
		c.Close()
	})
}

func TestListenFailsWithTheConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		subscribed := make(chan struct{}, 100)
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodResourcesSubscribe {
				subscribed <- struct{}{}
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		uris := make([]string, 100)
		for i := range uris {
			uris[i] = fmt.Sprintf(`"x:%d"`, i)
		}
		l := listen(t, c, `{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]}`)
		if n := len(subscribed); n != 8 {
			t.Errorf("%d concurrent subscribe requests, want 8", n)
		}
		l.end(t)
		l.wants(t)
		if left := c.ResourceSubscriptions(); left != 0 {
			t.Errorf("%d resource subscriptions remain, want 0", left)
		}
		unsubscribed := 0
		for _, line := range s.take() {
			if strings.Contains(line, "unsubscribe") {
				unsubscribed++
			}
		}
		if unsubscribed == 0 { // without a response, the server may have it
			t.Error("no resource was unsubscribed")
		}
		c.Close()
	})
}

// Requirement: SUB-11
func TestListenEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(*legacy.Client, *fakeServer){
		"closed": func(c *legacy.Client, _ *fakeServer) { c.Close() },
		"lost":   func(_ *legacy.Client, s *fakeServer) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{}
				c := open(t, clientConfig("2025-06-18"), s)
				l := listen(t, c, `{"toolsListChanged":true}`)
				l.wants(t, acknowledged(1, `{"toolsListChanged":true}`))
				changed(c, "tools") // is delivered nevertheless
				end(c, s)
				<-l.done
				if !errors.Is(l.err, legacy.ErrEnded) {
					t.Errorf("the subscription ended with %v", l.err)
				}
				l.wants(t, `tools/list_changed {`+id(1))
				c.Close()
			})
		})
	}
}

func TestListenEndsWhenNotifyFails(t *testing.T) {
	c := open(t, clientConfig("2025-06-18"), &fakeServer{})
	_, err := c.RoundTrip(t.Context(), "subscriptions/listen", withEnvelope(`"notifications":{}`, ""),
		func(context.Context, string, json.RawMessage) error { return errCancelled })
	if err != errCancelled {
		t.Errorf("the subscription ended with %v", err)
	}
}

func TestSubResourcesAreReported(t *testing.T) {
	for _, tc := range []struct{ subscribed, updated, want string }{
		{"file:///a", "file:///a/b/c", "file:///a/b/c"},
		{"file:///a/", "file:///a/b", "file:///a/b"},
		{"x:a", "x:a#part", "x:a#part"},
		{"x:a", "x:a?q=1#part", "x:a?q=1#part"},
		{"file:///a", "file:///ab", ""},
		{"file:///a", "file:///b", ""},
		{"file:///a/b", "file:///a", ""},
		{"file:///a", "", ""},
		{"file:///a", "file:///a" + strings.Repeat("/b", 31), "file:///a" + strings.Repeat("/b", 31)},
		{"file:///a", "file:///a" + strings.Repeat("/b", 40), ""},
		{"file:///a", "file:///a/" + strings.Repeat("b", 8<<10), ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, clientConfig("2025-06-18"), &fakeServer{})
			l := listen(t, c, `{"resourceSubscriptions":["`+tc.subscribed+`"]}`)
			l.got = nil
			updated(c, tc.updated)
			var want []string
			if tc.want != "" {
				want = []string{`resources/updated {"uri":"` + tc.want + `",` + id(1)}
			}
			l.wants(t, want...)
			l.end(t)
			c.Close()
		})
	}
}

func TestUnreadChangesAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, clientConfig("2025-06-18"), &fakeServer{})
		read := make(chan struct{})
		l := &subscriber{done: make(chan struct{})}
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			defer close(l.done)
			_, l.err = c.RoundTrip(ctx, "subscriptions/listen", withEnvelope(`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:/"]}`, ""),
				func(ctx context.Context, method string, params json.RawMessage) error {
					<-read
					return l.notify(ctx, method, params)
				})
		}()
		synctest.Wait()
		for i := range 3000 {
			changed(c, "tools")
			updated(c, fmt.Sprintf("x:/%d", i))
			updated(c, "x:/0")
		}
		close(read)
		synctest.Wait()
		// The acknowledgement, the list, a thousand sub-resources, and the subscribed resource for
		// all others.
		if len(l.got) != 1+1+1000+1 || l.got[len(l.got)-1] != `resources/updated {"uri":"x:/",`+id(1) {
			t.Errorf("%d notifications, want 1003; the last is %s", len(l.got), l.got[len(l.got)-1])
		}
		stop(errCancelled)
		<-l.done
		c.Close()
	})
}
