package events_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The extension is declared under its identifier and at the top level, to clients of the revisions
// that can use it.
func TestDeclaration(t *testing.T) {
	s, _ := newServer(t, nil)
	mcptest.RunClient(t, s, nil, func(t *testing.T, c *mcp.Client) {
		caps := c.Capabilities()
		settings, _ := json.Marshal(caps.Extensions[events.ID])
		want := `{"listChanged":true}`
		if c.Revision() < mcptest.Modern {
			want = "null"
		}
		if string(settings) != want || c.Revision() >= mcptest.Modern && string(caps.Other["events"]) != want {
			t.Errorf("%s: declared %s and %s, want %s", c.Revision(), settings, caps.Other["events"], want)
		}
		if got := events.Offered(c); got != (want != "null") {
			t.Errorf("Offered = %v", got)
		}
	})
}

func TestOlderRevisionsHaveNoEvents(t *testing.T) {
	s, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for _, method := range []string{"events/list", "events/poll", "events/stream"} {
			wantError(t, c, method, object{"name": "build.finished"}, mcp.CodeMethodNotFound, "")
		}
	})
}

func TestListDescribesEventTypes(t *testing.T) {
	s, srv := newServer(t, &events.Options{PageSize: 2})
	for _, name := range []string{"c", "a", "b", "hidden.not"} {
		delivery := map[string][]events.Mode{"b": {events.ModePoll}, "hidden.not": {events.ModeWebhook}}[name]
		events.Add(srv, &events.Event{Name: name, Description: "Event " + name, Delivery: delivery,
			Meta: mcp.Meta{"com.example/x": 1}}, onBranch)
	}
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		var names []string
		params := object{}
		for range 3 {
			page := decode[struct {
				Events     []events.Event
				NextCursor string
			}](t, c.Call("events/list", params))
			for _, e := range page.Events {
				names = append(names, e.Name+" "+string(e.Delivery[0]))
				if !strings.Contains(string(e.InputSchema), `"branch"`) || !strings.Contains(string(e.PayloadSchema), `"number"`) ||
					e.Description != "Event "+e.Name || e.Meta["com.example/x"] != 1.0 {
					t.Errorf("got %+v", e)
				}
			}
			if page.NextCursor == "" {
				break
			}
			params["cursor"] = page.NextCursor
		}
		// No mode of an event type for webhooks is offered.
		if want := []string{"a poll", "b poll", "c poll"}; !slices.Equal(names, want) {
			t.Errorf("got %q, want %q", names, want)
		}
		for _, cursor := range []any{"!", "YQ==", 7, ""} {
			wantError(t, c, "events/list", object{"cursor": cursor}, mcp.CodeInvalidParams, "")
		}
	})
}

func TestHiddenEventTypeDoesNotExist(t *testing.T) {
	s, srv := newServer(t, &events.Options{Visible: func(ctx context.Context, e *events.Event) bool {
		return mcp.PrincipalFrom(ctx) != nil || e.Name != "secret"
	}})
	events.Add(srv, &events.Event{Name: "secret"}, onBranch)
	events.Add(srv, &events.Event{Name: "public"}, onBranch)
	c := dial(t, s)
	all, err := mcp.Collect(events.List(t.Context(), c))
	if err != nil || len(all) != 1 || all[0].Name != "public" {
		t.Errorf("got %v, %v", all, err)
	}
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		wantError(t, c, "events/poll", object{"name": "secret"}, events.CodeNotFound, `{"kind":"event"}`)
		wantError(t, c, "events/stream", object{"name": "none"}, events.CodeNotFound, `{"kind":"event"}`)
	})
	known := mcp.WithPrincipal(t.Context(), &mcp.Principal{Subject: "ann"})
	if all, err := mcp.Collect(events.List(known, c)); err != nil || len(all) != 2 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestChangesOfTheListAreNotified(t *testing.T) {
	run(t, listChanger(t), func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"eventsListChanged": json.RawMessage("true")}})
		for i, change := range []string{"add", "update", "remove"} {
			c.Call("test/"+change, nil)
			c.Await(i+1, "notifications/events/list_changed")
		}
		c.Call("test/nothing", nil)
		synctest.Wait()
		if n := len(c.Notifications("notifications/events/list_changed")); n != 3 {
			t.Errorf("got %d notifications", n)
		}
	})
}

// listChanger returns a server whose event types change by requests.
func listChanger(t *testing.T) *mcp.Server {
	s, srv := newServer(t, nil)
	var typ *events.Type[build]
	for method, change := range map[string]func() error{
		"test/add":    func() error { typ = events.Add(srv, &events.Event{Name: "new"}, onBranch); return nil },
		"test/update": func() error { return typ.Update(func(e *events.Event) { e.Description = "New" }) },
		"test/remove": func() error { typ.Remove(nil); return nil },
		"test/nothing": func() error {
			typ.Remove(nil) // again
			return nil
		},
	} {
		srv.Handle(method, func(context.Context, *mcp.Request) (mcp.Result, error) { return mcp.EmptyResult{}, change() })
	}
	return s
}

func TestInvalidEventTypesPanic(t *testing.T) {
	_, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "taken"}, onBranch)
	for name, e := range map[string]*events.Event{
		"nil": nil, "empty name": {}, "space": {Name: "a b"}, "taken": {Name: "taken"},
		"mode":   {Name: "mode", Delivery: []events.Mode{"mail"}},
		"schema": {Name: "schema", InputSchema: json.RawMessage(`{"type":"array"}`)},
		"any":    {Name: "any", PayloadSchema: json.RawMessage(`{}`)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			events.Add(srv, e, onBranch)
		}()
	}
}
