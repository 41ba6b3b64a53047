package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
	acknowledged     = "notifications/subscriptions/acknowledged"
)

// changingServer returns a server with a tool, a prompt and two resources.
func changingServer(t *testing.T, opts *mcp.ServerOptions) *mcp.Server {
	s := newServer(t, opts)
	addValueTool(s, "tool", "x")
	mcp.AddPrompt(s, &mcp.Prompt{Name: "prompt"}, func(context.Context, struct{}) (string, error) { return "", nil })
	addText(s, "x://one", "1")
	addText(s, "x://two", "2")
	return s
}

// subscribe opens a subscription and waits until it is acknowledged.
func subscribe(t *testing.T, c *mcptest.Client, id jsonrpc.ID, filter string) *mcptest.Pending {
	t.Helper()
	before := len(c.Notifications(acknowledged))
	p := c.SendAs(id, "subscriptions/listen", object{"notifications": json.RawMessage(filter)})
	c.Await(before+1, acknowledged)
	return p
}

// notified returns the notifications of a subscription in short form.
func notified(t *testing.T, c *mcptest.Client, id jsonrpc.ID) (all []string) {
	t.Helper()
	for _, n := range c.Notifications() {
		p := decode[struct {
			URI           string
			Notifications json.RawMessage
			Meta          map[string]json.RawMessage `json:"_meta"`
		}](t, n.Params)
		if string(p.Meta["io.modelcontextprotocol/subscriptionId"]) == id.String() {
			what := strings.TrimPrefix(n.Method, "notifications/")
			all = append(all, strings.TrimSpace(what+" "+p.URI+string(p.Notifications)))
		}
	}
	return all
}

func wantNotified(t *testing.T, c *mcptest.Client, id jsonrpc.ID, want ...string) {
	t.Helper()
	if got := notified(t, c, id); !slices.Equal(got, want) {
		t.Errorf("subscription %s: got notifications\n%s, want\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// changeEverything changes all lists and two resources, and waits until the notifications are sent.
func changeEverything(s *mcp.Server) {
	addValueTool(s, "more", "x").Remove()
	mcp.AddPrompt(s, &mcp.Prompt{Name: "more"}, func(context.Context, struct{}) (string, error) { return "", nil }).Remove()
	addText(s, "x://more", "").Remove()
	time.Sleep(time.Second)
	synctest.Wait()
	s.ResourceUpdated("x://one")
	synctest.Wait()
	s.ResourceUpdated("x://two")
	synctest.Wait()
}

// The test client fails on notifications before the acknowledgement.
//
// Requirement: SUB-02, SUB-03, SUB-04, SUB-07, SUB-08, TOOL-05, PRM-10, RES-05, RES-07
func TestSubscriptionsGetWhatTheyAskedFor(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		number, text := jsonrpc.IntID(100), jsonrpc.StringID("100") // SUB-07: two different ids
		all, one, none := jsonrpc.StringID("all of it"), jsonrpc.IntID(-1), jsonrpc.StringID("")
		subscribe(t, c, number, `{"toolsListChanged":true}`)
		subscribe(t, c, text, `{"promptsListChanged":true,"toolsListChanged":false,"resourceSubscriptions":[]}`)
		subscribe(t, c, all, `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,
			"resourceSubscriptions":["x://one","x://two"],"ofTheFuture":{"a":1}}`)
		subscribe(t, c, one, `{"resourceSubscriptions":["x://one"]}`)
		subscribe(t, c, none, `{}`)
		changeEverything(s)
		wantNotified(t, c, number, `subscriptions/acknowledged {"toolsListChanged":true}`, "tools/list_changed")
		wantNotified(t, c, text, `subscriptions/acknowledged {"promptsListChanged":true}`, "prompts/list_changed")
		wantNotified(t, c, all, `subscriptions/acknowledged {"toolsListChanged":true,"promptsListChanged":true,`+
			`"resourcesListChanged":true,"resourceSubscriptions":["x://one","x://two"]}`,
			"tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated x://one", "resources/updated x://two")
		wantNotified(t, c, one, `subscriptions/acknowledged {"resourceSubscriptions":["x://one"]}`, "resources/updated x://one")
		wantNotified(t, c, none, `subscriptions/acknowledged {}`)
	})
}

// Requirement: SUB-05
func TestOnlySupportedPartsAreAcknowledged(t *testing.T) {
	toolsOnly := newServer(t, nil)
	addValueTool(toolsOnly, "tool", "x")
	const everyList = `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true`
	mcptest.RunOn(t, toolsOnly, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		subscribe(t, c, jsonrpc.IntID(1), `{`+everyList+`,"resourceSubscriptions":["x://one"]}`)
		wantNotified(t, c, jsonrpc.IntID(1), `subscriptions/acknowledged {"toolsListChanged":true}`)
	})
	guarded := changingServer(t, &mcp.ServerOptions{Visible: func(_ context.Context, f mcp.Feature) bool {
		return f.Resource == nil || f.Resource.URI != "x://two"
	}})
	mcptest.RunOn(t, guarded, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		long := "x://" + strings.Repeat("a", 9000)
		subscribe(t, c, jsonrpc.IntID(1), `{`+everyList+`,"resourceSubscriptions":["x://two","x://one","x://none","`+long+`"]}`)
		changeEverything(guarded)
		wantNotified(t, c, jsonrpc.IntID(1), `subscriptions/acknowledged {`+everyList+`,"resourceSubscriptions":["x://one"]}`,
			"tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated x://one")
	})
}

// Requirement: SUB-09
func TestClientEndsASubscription(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		ended := subscribe(t, c, jsonrpc.StringID("ended"), `{"toolsListChanged":true}`)
		subscribe(t, c, jsonrpc.StringID("stays"), `{"toolsListChanged":true}`)
		ended.Cancel("enough")
		synctest.Wait()
		changeEverything(s)
		wantNotified(t, c, jsonrpc.StringID("ended"), `subscriptions/acknowledged {"toolsListChanged":true}`)
		wantNotified(t, c, jsonrpc.StringID("stays"), `subscriptions/acknowledged {"toolsListChanged":true}`, "tools/list_changed")
		if ended.Answered() {
			t.Error("got a result for a cancelled subscription (T-59)")
		}
		again := subscribe(t, c, jsonrpc.StringID("ended"), `{"toolsListChanged":true}`) // the id is free again
		again.Cancel("enough")
	})
}

// On HTTP the result ends the subscription; on streams notifications/cancelled follows (T-04).
//
// Requirement: SUB-10
func TestServerEndsSubscriptionsWithAResult(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		ids := []jsonrpc.ID{jsonrpc.IntID(7), jsonrpc.StringID("7")}
		var open []*mcptest.Pending
		for _, id := range ids {
			open = append(open, subscribe(t, c, id, `{"toolsListChanged":true,"resourceSubscriptions":["x://one"]}`))
		}
		s.ResourceUpdated("x://one") // not sent yet
		c.Shutdown()
		synctest.Wait()
		for i, p := range open {
			m := p.Wait()
			want := `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/subscriptionId":` + ids[i].String() + `}`
			if m.Error != nil || !strings.Contains(string(m.Result), want) {
				t.Errorf("got %s, %v, want %s", m.Result, m.Error, want)
			}
			wantNotified(t, c, ids[i], `subscriptions/acknowledged {"toolsListChanged":true,"resourceSubscriptions":["x://one"]}`,
				"resources/updated x://one")
		}
		var cancelled []string
		for _, n := range c.Notifications("notifications/cancelled") {
			cancelled = append(cancelled, string(decode[map[string]json.RawMessage](t, n.Params)["requestId"]))
		}
		slices.Sort(cancelled)
		want := `"7" 7`
		if c.OverHTTP() {
			want = "" // CAN-12
		}
		if got := strings.Join(cancelled, " "); got != want {
			t.Errorf("cancelled: got %s, want %s", got, want)
		}
	})
}

// Requirement: SUB-15
func TestListenIsNotFoundWithoutFeatures(t *testing.T) {
	mcptest.RunOn(t, newServer(t, nil), mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("subscriptions/listen", object{"notifications": object{}})
		wantCode(t, "listen", err, mcp.CodeMethodNotFound)
	})
	mcptest.RunOn(t, newServer(t, nil), mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("resources/subscribe", object{"uri": "x://one"})
		wantCode(t, "subscribe", err, mcp.CodeMethodNotFound)
		_, err = c.Try("subscriptions/listen", object{"notifications": object{}})
		wantCode(t, "listen", err, mcp.CodeMethodNotFound)
	})
}

// Requirement: SUB-01
func TestInvalidFiltersAreInvalidParams(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("subscriptions/listen", nil)
		wantCode(t, "none", err, mcp.CodeInvalidParams)
		many := `{"resourceSubscriptions":[` + strings.Repeat(`"x://one",`, 10_000) + `"x://one"]}`
		for _, filter := range []string{
			`null`, `[]`, `"all"`, `{"toolsListChanged":1}`, `{"resourceSubscriptions":"x://one"}`, `{"resourceSubscriptions":[1]}`, many,
		} {
			_, err := c.Try("subscriptions/listen", object{"notifications": json.RawMessage(filter)})
			wantCode(t, fmt.Sprintf("%.40s", filter), err, mcp.CodeInvalidParams)
		}
		for _, method := range []string{"resources/subscribe", "resources/unsubscribe"} {
			_, err := c.Try(method, object{"uri": "x://one"})
			wantCode(t, method, err, mcp.CodeMethodNotFound)
		}
		if got := c.Notifications(); len(got) > 0 {
			t.Errorf("refused subscription: got %s, want no notifications", got[0].Method)
		}
	})
}

// Requirement: TOOL-04, TOOL-05
func TestEveryChangeOfAToolIsNotified(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search"}, search)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		stop := c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})
		handle := mcp.AddTool(s, &mcp.Tool{Name: "extra"}, search)
		c.Await(1, toolsChanged)
		if names := toolNames(t, c); names != "extra search" {
			t.Errorf("added: got %s", names)
		}
		handle.Update(func(t *mcp.Tool) { t.Description = "new words" })
		c.Await(2, toolsChanged)
		if tools := string(c.Call("tools/list", nil)); !strings.Contains(tools, "new words") {
			t.Errorf("updated: got %s", tools)
		}
		handle.Disable()
		c.Await(3, toolsChanged)
		if names := toolNames(t, c); names != "search" {
			t.Errorf("disabled: got %s", names)
		}
		_, err := c.Try("tools/call", object{"name": "extra", "arguments": object{"query": "x"}})
		wantCode(t, "a disabled tool", err, mcp.CodeInvalidParams)
		handle.Enable()
		c.Await(4, toolsChanged)
		if res := callTool(t, c, "extra", object{"query": "x"}); res.IsError {
			t.Errorf("enabled: got %+v", res)
		}
		handle.Remove()
		c.Await(5, toolsChanged)
		stop()
	})
}

// Sessions are notified of all list changes, and of the resources that they subscribed to.
//
// Requirement: RES-05, RES-06, PRM-10
func TestSessionsSubscribeToResources(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		stop := c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x://one", "x://one"}})
		changeEverything(s)
		count := func(method string, want int) {
			t.Helper()
			if got := len(c.Notifications(method)); got != want {
				t.Errorf("%s: got %d notifications, want %d", method, got, want)
			}
		}
		count(toolsChanged, 1)
		count(promptsChanged, 1)
		count(resourcesChanged, 1)
		updates := c.Notifications(resourceUpdated)
		if len(updates) != 1 || string(updates[0].Params) != `{"uri":"x://one"}` {
			t.Errorf("updates: got %v", updates)
		}
		stop()
		changeEverything(s)
		count(toolsChanged, 2)
		count(resourceUpdated, 1)
		count(acknowledged, 0)
	})
}

// A pending change must not be lost when the session subscribes to another resource.
//
// Requirement: RES-06
func TestSubscribingLosesNoChange(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x://one"}})
		for range 50 {
			before := len(c.Notifications(resourceUpdated))
			s.ResourceUpdated("x://one")
			c.Call("resources/subscribe", object{"uri": "x://two"})
			c.Call("resources/unsubscribe", object{"uri": "x://two"})
			synctest.Wait()
			if len(c.Notifications(resourceUpdated)) == before {
				t.Fatal("a change was lost")
			}
		}
	})
}

func TestListChangesAreMerged(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})
		var handles []*mcp.Registration[mcp.Tool]
		for i := range 100 {
			handles = append(handles, addValueTool(s, fmt.Sprintf("tool%d", i), "x"))
		}
		time.Sleep(time.Second)
		if got := len(c.Notifications(toolsChanged)); got != 1 {
			t.Errorf("got %d notifications, want 1", got)
		}
		for _, h := range handles {
			h.Remove()
		}
		c.Await(2, toolsChanged)
	})
}

// listenRequest returns a subscription request that is served without a transport.
func listenRequest(t *testing.T, filter string, notify func(method string) error) *mcp.Request {
	t.Helper()
	req := modernRequest(t, nil, "subscriptions/listen", object{"notifications": json.RawMessage(filter)})
	req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
		return notify(method + string(params))
	}
	return req
}

func TestChangesForASlowClientAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		read, got := make(chan struct{}), []string{}
		ctx, cancel := context.WithCancelCause(t.Context())
		req := listenRequest(t, `{"toolsListChanged":true,"resourceSubscriptions":["x://one","x://two"]}`, func(n string) error {
			<-read
			got = append(got, n[:strings.IndexByte(n, '{')]+n[len(n)-1:])
			return nil
		})
		done := make(chan error)
		go func() {
			_, err := s.ServeMCP(ctx, req)
			done <- err
		}()
		synctest.Wait()
		for range 1000 {
			s.ResourceUpdated("x://one")
			s.ResourceUpdated("x://two")
			s.ResourceUpdated("x://none")
			addValueTool(s, "more", "x").Remove()
			time.Sleep(time.Second)
		}
		close(read)
		synctest.Wait()
		want := []string{acknowledged + "}", toolsChanged + "}", resourceUpdated + "}", resourceUpdated + "}"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		cancel(mcp.ErrCancelled)
		if err := <-done; err == nil {
			t.Error("got a result for a cancelled subscription")
		}
	})
}

func TestEachOfManyUpdatesForASlowClientIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		uris := make([]string, 20)
		for i := range uris {
			uris[i] = fmt.Sprintf("x://many/%d", i)
			mcp.AddResource(s, &mcp.Resource{URI: uris[i], Name: uris[i]},
				func(context.Context, string) (string, error) { return "", nil })
		}
		filter, err := json.Marshal(object{"resourceSubscriptions": uris})
		if err != nil {
			t.Fatal(err)
		}
		read, got := make(chan struct{}), []string{}
		req := listenRequest(t, string(filter), func(n string) error {
			<-read
			_, after, _ := strings.Cut(n, `"uri":"`)
			uri, _, _ := strings.Cut(after, `"`)
			got = append(got, uri)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go s.ServeMCP(ctx, req)
		synctest.Wait()
		for range 3 {
			for _, uri := range uris {
				s.ResourceUpdated(uri)
			}
		}
		close(read)
		synctest.Wait()
		if want := append([]string{""}, uris...); !slices.Equal(got, want) {
			t.Errorf("got %q, want the acknowledgement and each resource once", got)
		}
		cancel()
	})
}

// Requirement: SUB-11
func TestWriteErrorEndsASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		left := 2
		req := listenRequest(t, `{"toolsListChanged":true}`, func(string) error {
			if left--; left < 0 {
				return mcp.ErrDisconnected
			}
			return nil
		})
		done := make(chan error)
		go func() {
			_, err := s.ServeMCP(t.Context(), req)
			done <- err
		}()
		for range 2 {
			synctest.Wait()
			addValueTool(s, "more", "x").Remove()
			time.Sleep(time.Second)
		}
		if err := <-done; err == nil {
			t.Error("got no error from a closed stream")
		}
	})
}

// A tool logs and sends progress while a subscription is open.
//
// Requirement: LOG-07, SUB-12
func TestSubscriptionsGetNoLogOrProgressOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		addTool(s, "work", func(ctx context.Context) (string, error) {
			mcp.Logger(ctx).Error("failed")
			mcp.Progress(ctx, 1, 1, "")
			return "", nil
		})
		var listened []string
		stop, err := s.Listen(t.Context(), listenRequest(t, `{"toolsListChanged":true}`, func(n string) error {
			listened = append(listened, n[:strings.IndexByte(n, '{')])
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		var called []string
		meta := strings.Replace(fmt.Sprintf(modernMeta, `{}`), "{", `{"progressToken":"p","io.modelcontextprotocol/logLevel":"debug",`, 1)
		for range 2 {
			req := modernRequest(t, nil, "tools/call", object{"name": "work", "_meta": json.RawMessage(meta)})
			req.Notify = func(_ context.Context, method string, _ json.RawMessage) error {
				called = append(called, method)
				return nil
			}
			if _, err := mcp.AppendResponse(nil, t.Context(), s, req); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !slices.Equal(listened, []string{acknowledged}) || !slices.Equal(called, []string{logged, progressed, logged, progressed}) {
			t.Errorf("subscription got %q, calls got %q", listened, called)
		}
	})
}

func TestListenNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := changingServer(t, nil)
		var got []string
		req := listenRequest(t, `{"toolsListChanged":true,"resourceSubscriptions":["x://one"]}`, func(n string) error {
			got = append(got, n[:strings.IndexByte(n, '{')])
			return nil
		})
		stop, err := s.Listen(t.Context(), req) // the bubble would not end if a goroutine were left
		if err != nil {
			t.Fatal(err)
		}
		s.ResourceUpdated("x://one")
		addValueTool(s, "more", "x").Remove()
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		stop()
		s.ResourceUpdated("x://one")
		if want := []string{acknowledged, resourceUpdated, toolsChanged}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestListenRetriesNotificationsThatFailed(t *testing.T) {
	s := changingServer(t, nil)
	full := false
	var got []string
	req := listenRequest(t, `{"toolsListChanged":true,"resourceSubscriptions":["x://one","x://two"]}`, func(n string) error {
		if full {
			return errors.New("buffer full")
		}
		got = append(got, n[:strings.IndexByte(n, '{')])
		return nil
	})
	synctest.Test(t, func(t *testing.T) {
		stop, err := s.Listen(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		full = true
		addValueTool(s, "more", "x").Remove()
		time.Sleep(time.Second)
		synctest.Wait()
		s.ResourceUpdated("x://one")
		full = false
		s.ResourceUpdated("x://two")
		if want := []string{acknowledged, toolsChanged, resourceUpdated, resourceUpdated}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestListenRefusesInvalidRequests(t *testing.T) {
	quiet := func(string) error { return nil }
	s := changingServer(t, nil)
	if _, err := s.Listen(t.Context(), listenRequest(t, `[]`, quiet)); err == nil {
		t.Error("invalid filter: got no error")
	}
	gone := func(string) error { return mcp.ErrDisconnected }
	if _, err := s.Listen(t.Context(), listenRequest(t, `{"toolsListChanged":true}`, gone)); err == nil {
		t.Error("closed stream: got no error")
	}
	noNotify := listenRequest(t, `{}`, quiet)
	noNotify.Notify = nil
	if _, err := s.Listen(t.Context(), noNotify); err == nil {
		t.Error("request without Notify: got no error")
	}
	answers := changingServer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{func(mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return mcp.EmptyResult{}, nil })
	}}})
	var e *mcp.Error
	if _, err := answers.Listen(t.Context(), listenRequest(t, `{}`, quiet)); !errors.As(err, &e) || e.Code != mcp.CodeInvalidRequest {
		t.Errorf("middleware that returns a result: got %v, want an invalid request", err)
	}
}
