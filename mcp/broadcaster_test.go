package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A broadcastHandler serves subscriptions with a Broadcaster, and everything else with a handler.
type broadcastHandler struct {
	changes *mcp.Broadcaster
	other   mcp.Handler
}

func (h *broadcastHandler) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "subscriptions/listen" {
		return h.changes.ServeMCP(ctx, req)
	}
	return h.other.ServeMCP(ctx, req)
}

func (h *broadcastHandler) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return h.changes.Listen(ctx, req)
}

func (h *broadcastHandler) UsesBroadcaster() mcp.Handler { return h }

// A plainBroadcastHandler has neither Listen nor UsesBroadcaster.
type plainBroadcastHandler struct{ handler *broadcastHandler }

func (h plainBroadcastHandler) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return h.handler.ServeMCP(ctx, req)
}

// broadcastHandlers returns handlers that use a new Broadcaster in every way.
func broadcastHandlers(t *testing.T, changes *mcp.Broadcaster) map[string]mcp.Handler {
	h := &broadcastHandler{changes, changingServer(t, nil)}
	inServer := changingServer(t, nil)
	inServer.Use(func(next mcp.Handler) mcp.Handler { return &broadcastHandler{changes, next} })
	return map[string]mcp.Handler{
		"a handler":                     h,
		"a handler of ServeMCP alone":   plainBroadcastHandler{h},
		"a middleware of a Server":      inServer,
		"a handler behind a middleware": mcp.Middleware(func(next mcp.Handler) mcp.Handler { return plainBroadcastHandler{&broadcastHandler{changes, next}} })(inServer),
	}
}

func TestBroadcasterSendsWhatWasAskedFor(t *testing.T) {
	changes := mcp.NewBroadcaster(nil)
	for name, h := range broadcastHandlers(t, changes) {
		t.Run(name, func(t *testing.T) {
			mcptest.Run(t, h, func(t *testing.T, c *mcptest.Client) {
				stop := c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true,
					ResourceSubscriptions: []string{"x://one"}})
				send := func(kind mcp.EventKind, uri string) {
					changes.Send(mcp.Event{Kind: kind, URI: uri})
					time.Sleep(time.Second)
					synctest.Wait()
				}
				for _, kind := range []mcp.EventKind{mcp.EventToolsChanged, mcp.EventPromptsChanged, mcp.EventResourcesChanged,
					mcp.EventListening, 0} {
					send(kind, "")
				}
				for _, uri := range []string{"x://one", "x://one/part", "x://two", "x://onesie"} {
					send(mcp.EventResourceUpdated, uri)
				}
				want := []string{toolsChanged, promptsChanged, resourcesChanged, resourceUpdated, resourceUpdated}
				wantMethods(t, c, want)
				send(mcp.EventChangesMissed, "")
				want = append(want, toolsChanged, promptsChanged, resourcesChanged, resourceUpdated)
				wantMethods(t, c, want)
				stop()
				synctest.Wait()
				send(mcp.EventResourceUpdated, "x://one")
				wantMethods(t, c, want)
			})
		})
	}
}

// wantMethods checks the notifications of changes.
func wantMethods(t *testing.T, c *mcptest.Client, want []string) {
	t.Helper()
	var got []string
	for _, n := range c.Notifications(toolsChanged, promptsChanged, resourcesChanged, resourceUpdated) {
		got = append(got, n.Method)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got notifications\n%q, want\n%q", got, want)
	}
}

func TestBroadcasterMergesChanges(t *testing.T) {
	changes := mcp.NewBroadcaster(nil)
	mcptest.Run(t, broadcastHandlers(t, changes)["a handler"], func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})
		for range 100 {
			changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantMethods(t, c, []string{toolsChanged})
	})
}

func TestBroadcasterAcknowledgesWhatIsAgreed(t *testing.T) {
	var ended []string
	changes := mcp.NewBroadcaster(func(ctx context.Context, req *mcp.Request, f *mcp.SubscriptionFilter) (func(), error) {
		if mcp.RequestFrom(ctx) != req {
			t.Error("the context is not that of the request")
		}
		f.PromptsListChanged = false
		f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, func(uri string) bool { return uri != "x://one" })
		delete(f.Topics, "unknown")
		return func() { ended = append(ended, req.ID.String()) }, nil
	})
	h := &broadcastHandler{changes, changingServer(t, nil)}
	mcptest.RunOn(t, h, mcptest.Since(mcptest.Modern), withJobs, func(t *testing.T, c *mcptest.Client) {
		ended = nil
		long := "x://" + strings.Repeat("a", 9000)
		p := subscribe(t, c, jsonrpc.IntID(1), `{"toolsListChanged":true,"promptsListChanged":true,"jobs":["a"],"unknown":1,`+
			`"resourceSubscriptions":["x://two","x://one","`+long+`"]}`)
		subscribe(t, c, jsonrpc.IntID(2), `{}`)
		changes.Send(mcp.Event{Kind: mcp.EventChangesMissed})
		synctest.Wait()
		wantNotified(t, c, jsonrpc.IntID(1), `subscriptions/acknowledged {"toolsListChanged":true,"resourceSubscriptions":["x://one"],"jobs":["a"]}`,
			"tools/list_changed", "resources/updated x://one")
		wantNotified(t, c, jsonrpc.IntID(2), `subscriptions/acknowledged {}`)
		p.Cancel("enough")
		synctest.Wait()
		if !slices.Equal(ended, []string{"1"}) {
			t.Errorf("got ends of %q, want 1", ended)
		}
		c.Shutdown()
		synctest.Wait()
		if !slices.Equal(ended, []string{"1", "2"}) {
			t.Errorf("got ends of %q, want 1 and 2", ended)
		}
	})
}

// Sessions subscribe again for each resource, so there are several ends, each of which is called once.
func TestBroadcasterEndsEachSubscriptionOfASession(t *testing.T) {
	var mu sync.Mutex
	agreed, refused, ended := 0, 0, 0 // over all connections
	changes := mcp.NewBroadcaster(func(_ context.Context, _ *mcp.Request, f *mcp.SubscriptionFilter) (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains(f.ResourceSubscriptions, "x://refused") {
			refused++
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "refused")
		}
		agreed++
		return func() {
			mu.Lock()
			defer mu.Unlock()
			ended++
		}, nil
	})
	for name, h := range broadcastHandlers(t, changes) {
		t.Run(name, func(t *testing.T) {
			mcptest.RunOn(t, h, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
				mu.Lock()
				before := agreed
				mu.Unlock()
				c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x://one", "x://two"}})
				_, err := c.Try("resources/subscribe", object{"uri": "x://refused"})
				wantCode(t, "subscribe", err, mcp.CodeInvalidParams)
				changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: "x://two"})
				c.Await(1, resourceUpdated)
				c.Shutdown()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if agreed < before+2 || ended != agreed || refused == 0 {
					t.Errorf("agreed to %d subscriptions, refused %d, %d have ended; want all", agreed-before, refused, ended)
				}
			})
		})
	}
}

func TestBroadcasterSendsTopicsToThoseThatNamedThem(t *testing.T) {
	changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) { return nil, nil })
	h := &broadcastHandler{changes, changingServer(t, nil)}
	jobs := func(raw string) *mcp.SubscriptionFilter {
		return &mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"jobs": json.RawMessage(raw)}}
	}
	mcptest.RunOn(t, h, mcptest.Since(mcptest.Modern), withJobs, func(t *testing.T, c *mcptest.Client) {
		list, one, other, none := jsonrpc.StringID("list"), jsonrpc.StringID("one"), jsonrpc.StringID("other"), jsonrpc.StringID("none")
		subscribe(t, c, list, `{"jobs":["a","b\u002f"]}`)
		subscribe(t, c, one, `{"jobs":"a"}`)
		subscribe(t, c, other, `{"jobs":["c",7]}`)
		subscribe(t, c, none, `{"toolsListChanged":true}`)
		for n, filter := range []*mcp.SubscriptionFilter{jobs(`"a"`), jobs(`"b/"`), jobs(`"c"`), jobs(`7`), jobs(`"7"`), jobs(`"d"`),
			jobs(`["c",7]`), {}, nil} {
			params := fmt.Sprintf(`{"n":%d,"_meta":{"x/y":1,"io.modelcontextprotocol/subscriptionId":9}}`, n)
			changes.Send(mcp.Event{Kind: mcp.EventTopic, Method: jobChanged, Params: json.RawMessage(params), Filter: filter})
			synctest.Wait()
		}
		changes.Send(mcp.Event{Kind: mcp.EventTopic, Method: jobChanged, Params: json.RawMessage(`[1]`)}) // logged, not sent
		synctest.Wait()
		got := map[string]string{}
		for _, n := range c.Notifications(jobChanged) {
			p := decode[struct {
				N    int
				Meta map[string]json.RawMessage `json:"_meta"`
			}](t, n.Params)
			if len(p.Meta) != 2 {
				t.Errorf("got _meta %s, want 2 members", p.Meta)
			}
			got[string(p.Meta["io.modelcontextprotocol/subscriptionId"])] += fmt.Sprint(p.N)
		}
		want := map[string]string{`"list"`: "018", `"one"`: "08", `"other"`: "2368"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got events %v, want %v", got, want)
		}
	})
}

func TestBroadcasterSendsSessionsNoTopics(t *testing.T) {
	changes := mcp.NewBroadcaster(func(_ context.Context, _ *mcp.Request, f *mcp.SubscriptionFilter) (func(), error) {
		if f.Topics != nil {
			t.Errorf("got topics %s, want none", f.Topics)
		}
		return nil, nil
	})
	req := listenRequest(t, `{"jobs":true}`, func(string) error { return nil })
	old, err := mcp.NewRequest(&jsonrpc.Message{ID: req.ID, Method: req.Method, Params: json.RawMessage(strings.Replace(string(req.Params), "2026-07-28", "2025-11-25", 1))})
	if err != nil {
		t.Fatal(err)
	}
	old.Notify = req.Notify
	stop, err := changes.Listen(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// A client that does not read neither blocks Send nor uses up memory.
func TestBroadcasterDoesNotWaitForASlowClient(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, test := range map[string]struct{ events, size, kept int }{
		"many events": {30_000, 10, 20_000}, "large events": {2000, 1 << 20, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				old := slog.Default()
				slog.SetDefault(textLog(&log))
				defer slog.SetDefault(old)
				changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) { return nil, nil })
				read, sent := make(chan struct{}), map[string]int{}
				req := listenRequest(t, `{"jobs":1,"toolsListChanged":true,"resourceSubscriptions":["x://a"]}`, func(n string) error {
					method := n[:strings.IndexByte(n, '{')]
					if method != acknowledged {
						<-read
					}
					sent[method]++
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = changes.ServeMCP(ctx, req)
				}()
				synctest.Wait()
				params := json.RawMessage(`{"pad":"` + strings.Repeat("a", max(0, test.size-len(`{"pad":""}`))) + `"}`)
				for i := range test.events {
					changes.Send(mcp.Event{Kind: mcp.EventTopic, Method: jobChanged, Params: params})
					changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: fmt.Sprint("x://a/", i)})
					changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
					if i == 0 {
						synctest.Wait() // until the first one is being sent
					}
				}
				close(read)
				time.Sleep(time.Second)
				synctest.Wait()
				cancel()
				<-done
				if got := sent[jobChanged]; got != test.kept && got != test.kept+1 || strings.Count(log.String(), "changes dropped") != 1 {
					t.Errorf("got %d events, want %d; log: %s", sent[jobChanged], test.kept, log.String())
				}
				if got := sent[resourceUpdated]; got < 1000 || got > 1002 {
					t.Errorf("got %d updates, want 1000 and one of the resource above", got)
				}
			})
		})
	}
}

func TestBroadcasterListensWithoutGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) {
			return func() { ended++ }, nil
		})
		var got []string
		req := listenRequest(t, `{"toolsListChanged":true,"resourceSubscriptions":["x://one"]}`, func(n string) error {
			got = append(got, n[:strings.IndexByte(n, '{')])
			return nil
		})
		stop, err := changes.Listen(t.Context(), req) // the bubble would not end if a goroutine were left
		if err != nil {
			t.Fatal(err)
		}
		changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: "x://one"})
		changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		stop()
		changes.Send(mcp.Event{Kind: mcp.EventChangesMissed})
		if want := []string{acknowledged, resourceUpdated, toolsChanged}; !slices.Equal(got, want) || ended != 1 {
			t.Errorf("got %q and %d ends, want %q and 1", got, ended, want)
		}
	})
}

func TestBroadcasterRefusesInvalidRequests(t *testing.T) {
	refused := mcp.Errorf(mcp.CodeInvalidParams, "refused")
	var fails func() (func(), error)
	changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) { return fails() })
	quiet := func(string) error { return nil }
	ends := 0
	end := func() { ends++; panic("on purpose") } // which is recovered
	noNotify := listenRequest(t, `{}`, quiet)
	noNotify.Notify = nil
	agrees := func() (func(), error) { return end, nil }
	for name, test := range map[string]struct {
		req   *mcp.Request
		agree func() (func(), error)
		code  int
		ends  int
	}{
		"another method":  {modernRequest(t, nil, "tools/list", nil), agrees, mcp.CodeMethodNotFound, 0},
		"no object":       {listenRequest(t, `[]`, quiet), agrees, mcp.CodeInvalidParams, 0},
		"no Notify":       {noNotify, agrees, mcp.CodeInvalidRequest, 0},
		"not agreed":      {listenRequest(t, `{}`, quiet), func() (func(), error) { return nil, refused }, mcp.CodeInvalidParams, 0},
		"a panic":         {listenRequest(t, `{}`, quiet), func() (func(), error) { panic("on purpose") }, mcp.CodeInternalError, 0},
		"a closed stream": {listenRequest(t, `{}`, func(string) error { return refused }), agrees, mcp.CodeInvalidParams, 1},
		"a stream that panics": {listenRequest(t, `{}`, func(string) error { panic("on purpose") }), agrees,
			mcp.CodeInternalError, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fails = test.agree
			for how, open := range map[string]func() error{
				"Listen":   func() error { _, err := changes.Listen(t.Context(), test.req); return err },
				"ServeMCP": func() error { _, err := mcp.AppendResponse(nil, t.Context(), changes, test.req); return err },
			} {
				ends = 0
				var e *mcp.Error
				if err := open(); !errors.As(err, &e) || e.Code != test.code || ends != test.ends {
					t.Errorf("%s: got %v and %d ends, want code %d and %d", how, err, ends, test.code, test.ends)
				}
			}
		})
	}
}

// Send may hold a lock that the end of a subscription needs, also while one fails to open.
func TestBroadcasterDoesNotBlockTheEndOfASubscription(t *testing.T) {
	for range 100 {
		var mu sync.Mutex
		changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) {
			return func() { mu.Lock(); defer mu.Unlock() }, nil
		})
		var sending sync.WaitGroup
		gone := func(string) error {
			sending.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				changes.Send(mcp.Event{Kind: mcp.EventResourceUpdated, URI: "x://one"})
			})
			return mcp.ErrDisconnected
		}
		if _, err := changes.Listen(t.Context(), listenRequest(t, `{"resourceSubscriptions":["x://one"]}`, gone)); err == nil {
			t.Fatal("closed stream: got no error")
		}
		sending.Wait()
	}
}

// An embeddingHandler embeds a handler, with its method UsesBroadcaster.
type embeddingHandler struct {
	*broadcastHandler
	begun, ended chan struct{}
}

func (h embeddingHandler) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	close(h.begun)
	defer close(h.ended)
	return h.broadcastHandler.ServeMCP(ctx, req)
}

// A returningHandler uses a Broadcaster, and records when it has returned.
type returningHandler struct{ embeddingHandler }

func (h returningHandler) UsesBroadcaster() mcp.Handler { return h }

func TestSubscriptionOfABroadcasterOutlivesOnlyHandlersThatUseIt(t *testing.T) {
	for name, returns := range map[string]bool{"a handler that uses it": true, "one that embeds such a handler": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changes := mcp.NewBroadcaster(nil)
				inner := embeddingHandler{&broadcastHandler{changes, nil}, make(chan struct{}), make(chan struct{})}
				h := mcp.Handler(inner)
				if returns {
					h = returningHandler{inner}
				}
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
				returned := false
				select {
				case <-inner.ended:
					returned = true
				default:
				}
				changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
				time.Sleep(time.Second)
				synctest.Wait()
				if want := []string{acknowledged, toolsChanged}; returned != returns || !slices.Equal(got, want) {
					t.Errorf("got returned %t and notifications %q; want %t and %q", returned, got, returns, want)
				}
				cancel(mcp.ErrShutdown)
				if body := <-answer; !strings.Contains(body, `"io.modelcontextprotocol/subscriptionId":1`) {
					t.Errorf("got %s, want a result", body)
				}
			})
		})
	}
}

func TestBroadcasterIsSafeForConcurrentUse(t *testing.T) {
	mcptest.NoLeaks(t)
	changes := mcp.NewBroadcaster(func(context.Context, *mcp.Request, *mcp.SubscriptionFilter) (func(), error) { return func() {}, nil })
	var work sync.WaitGroup
	quiet := func(string) error { return nil }
	for i := range 8 {
		push := listenRequest(t, `{"toolsListChanged":true,"jobs":["a"],"resourceSubscriptions":["x://one"]}`, quiet)
		detached := listenRequest(t, `{"toolsListChanged":true,"jobs":["a"],"resourceSubscriptions":["x://one"]}`, quiet)
		work.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					_, _ = changes.ServeMCP(ctx, push)
				}()
				stop, err := changes.Listen(ctx, detached)
				if err != nil {
					t.Error(err)
				}
				changes.Send(mcp.Event{Kind: mcp.EventKind(i + 1), URI: "x://one/a", Method: jobChanged, Params: json.RawMessage(`{}`)})
				stop()
				cancel()
				<-stopped
			}
		})
	}
	work.Wait()
}
