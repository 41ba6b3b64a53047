package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// wantFault tests the code of an error.
func wantFault(t *testing.T, err error, code int) {
	t.Helper()
	if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != code {
		t.Errorf("got %v, want code %d", err, code)
	}
}

func params(name string, more ...any) map[string]any {
	p := map[string]any{"name": name, "arguments": map[string]any{"a": 1}}
	for i := 0; i < len(more); i += 2 {
		p[more[i].(string)] = more[i+1] //nolint:forcetypeassert // of the test
	}
	return p
}

// A caller receives the events of a server by poll and by push, whichever of them the server offers.
func TestEventsInEachMode(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		for _, lacksCursor := range []bool{false, true} {
			if mode == "poll" && lacksCursor {
				continue // no poll returns an event
			}
			for _, down := range oneProcess(mcptest.Since("2026-07-28")) {
				t.Run(mode+" to "+down.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newEventServer("git", mode)
						s.lacksCursor = lacksCursor
						h := eventHost(t, map[string]*eventServer{"git": s, "db": newEventServer("db", "push")}, host.Options{})
						c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
						pushed := stream(t, c, params("git__changed"))
						defer pushed.cancel()
						first, err := poll(t, c, params("git__changed", "cursor", nil))
						if err != nil || len(first.Events) != 0 || first.Cursor == nil || first.Truncated {
							t.Fatalf("first poll: got %+v, %v", first, err)
						}
						synctest.Wait()
						s.emit(`{"n":1}`)
						s.emit(`{"n":2}`)
						<-time.After(20 * time.Second)
						want := []string{`{"n":1}`, `{"n":2}`}
						if got := pushed.data(); !slices.Equal(got, want) {
							t.Errorf("push: got %q", got)
						}
						second, err := poll(t, c, params("git__changed", "cursor", first.Cursor))
						if err != nil || !slices.Equal(second.data(), want) {
							t.Fatalf("second poll: got %+v, %v", second, err)
						}
						again, err := poll(t, c, params("git__changed", "cursor", first.Cursor))
						if err != nil || !slices.Equal(again.data(), want) {
							t.Errorf("repeated poll: got %+v, %v", again, err)
						}
						for _, e := range append(second.Events, pushed.received("event")...) {
							if e.Name != "git__changed" || e.EventID == "" || e.Extra != nil {
								t.Errorf("got event %+v", e)
							}
						}
						last, err := poll(t, c, params("git__changed", "cursor", second.Cursor))
						if err != nil || len(last.Events) != 0 {
							t.Errorf("last poll: got %+v, %v", last, err)
						}
						if n := len(pushed.received("active")); n != 1 || len(pushed.received("heartbeat")) == 0 {
							t.Errorf("got %d notifications active, %v", n, pushed.notes)
						}
					})
				})
			}
		}
	}
}

// Callers of older revisions, and callers of servers without events, know no methods of events.
func TestCallersWithoutEvents(t *testing.T) {
	h := eventHost(t, map[string]*eventServer{"git": newEventServer("git", "push")}, host.Options{})
	without := newHostWith(t, map[string]mcp.Handler{"web": serverOf("web", "w")}, host.Options{})
	old := mcptest.Dial(t, h.For(&policy.Caller{}),
		mcptest.Combination{Transport: mcptest.Stdio, Revision: "2025-11-25"}, nil)
	for _, c := range []*mcp.Client{old, client(t, without, &policy.Caller{}),
		client(t, h, &policy.Caller{Only: []policy.ActionKind{policy.ActionCall}})} {
		for _, method := range []string{"events/list", "events/poll", "events/stream"} {
			_, err := c.Do(t.Context(), method, params("git__changed"))
			wantFault(t, err, mcp.CodeMethodNotFound)
		}
	}
}

// The host lists the events of all servers under its own names, in the modes that it translates, and announces
// changes.
func TestListOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hide := policyFunc(func(a *policy.Action) policy.Decision {
			if a.Server == "db" && a.Caller.Principal != nil {
				return policy.Decision{Do: policy.OutcomeHide}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		})
		h := eventHost(t, map[string]*eventServer{"git": newEventServer("git", "push"), "db": newEventServer("db", "poll")},
			host.Options{Policy: hide})
		for _, test := range []struct {
			caller *policy.Caller
			want   []string
		}{
			{&policy.Caller{}, []string{"db__changed", "git__changed"}},
			{&policy.Caller{Principal: principal("eve")}, []string{"git__changed"}},
			{&policy.Caller{Server: "db"}, []string{"changed"}},
		} {
			c := client(t, h, test.caller)
			if _, ok := c.Capabilities().Extensions[extensionEvents]; !ok {
				t.Errorf("%+v: extensions %v", test.caller, c.Capabilities().Extensions)
			}
			var list struct {
				Events []struct {
					Name     string
					Delivery []string
				}
			}
			raw, err := c.Do(t.Context(), "events/list", nil)
			if err != nil || json.Unmarshal(raw, &list) != nil {
				t.Fatalf("got %s, %v", raw, err)
			}
			var names []string
			for _, e := range list.Events {
				names = append(names, e.Name)
				if !slices.Equal(e.Delivery, []string{"push", "poll"}) {
					t.Errorf("%s: delivery %q", e.Name, e.Delivery)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, test.want) {
				t.Errorf("%+v: got %q", test.caller, names)
			}
		}
		eve := client(t, h, &policy.Caller{Principal: principal("eve")})
		_, err := poll(t, eve, params("db__changed"))
		wantFault(t, err, -32023)
		_, err = poll(t, eve, params("nothing"))
		wantFault(t, err, -32023)
	})
}

// A policy refuses a subscription by its name and arguments, and removes parts of events.
func TestPolicyOfEvents(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		synctest.Test(t, func(t *testing.T) {
			decide := policyFunc(func(a *policy.Action) policy.Decision {
				switch {
				case a.Kind == policy.ActionEvent && string(a.Arguments) != `{"a":1}`:
					return policy.Decision{Rule: "only-1"}
				case a.Kind == policy.ActionResult:
					return policy.Decision{Do: policy.OutcomeAllow, Redact: []policy.Redaction{{Pointer: "/secret"}}}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})
			var records []*event.Record
			h := eventHost(t, map[string]*eventServer{"git": newEventServer("git", mode)}, host.Options{Policy: decide,
				Recorder: recorderFunc(func(r *event.Record) {
					if r.Kind == policy.ActionEvent {
						records = append(records, r)
					}
				})})
			c := client(t, h, &policy.Caller{})
			_, err := poll(t, c, map[string]any{"name": "git__changed", "arguments": map[string]any{"a": 2}})
			wantFault(t, err, -32024)
			refused := stream(t, c, map[string]any{"name": "git__changed"})
			wantFault(t, <-refused.done, -32024)
			if len(records) != 2 || records[0].Event != event.Refused || records[0].Rule != "only-1" ||
				records[1].Public != "git__changed" {
				t.Fatalf("got records %+v", records)
			}
		})
	}
}

// Events lose the parts that the policy redacts, in each mode, and the audit log contains each request.
func TestRedactedEvents(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		synctest.Test(t, func(t *testing.T) {
			redact := policyFunc(func(a *policy.Action) policy.Decision {
				if a.Kind == policy.ActionResult {
					return policy.Decision{Do: policy.OutcomeAllow, Redact: []policy.Redaction{{Pointer: "/secret"}}}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})
			var mu sync.Mutex
			var kinds []string // guarded by mu
			s := newEventServer("git", mode)
			h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{Policy: redact,
				Recorder: recorderFunc(func(r *event.Record) {
					if r.Kind == policy.ActionEvent {
						mu.Lock()
						defer mu.Unlock()
						kinds = append(kinds, r.Method+" "+string(r.Event))
					}
				})})
			c := client(t, h, &policy.Caller{})
			pushed := stream(t, c, params("git__changed"))
			first, err := poll(t, c, params("git__changed"))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.emit(`{"n":1,"secret":"swordfish"}`)
			<-time.After(10 * time.Second)
			second, err := poll(t, c, params("git__changed", "cursor", first.Cursor))
			want := []string{`{"n":1,"secret":"[redacted]"}`}
			if err != nil || !slices.Equal(second.data(), want) || !slices.Equal(pushed.data(), want) {
				t.Errorf("%s: got %+v, %v and %q", mode, second, err, pushed.data())
			}
			pushed.cancel()
			<-pushed.done
			synctest.Wait()
			slices.Sort(kinds)
			wantKinds := []string{"events/poll end", "events/poll end", "events/poll intent", "events/poll intent",
				"events/stream end", "events/stream intent"}
			if !slices.Equal(kinds, wantKinds) {
				t.Errorf("%s: got records %q", mode, kinds)
			}
		})
	}
}

// No caller can create, rotate or end a webhook: for a server, all callers are the principal of the host. The host
// offers no webhooks, whatever the server offers and the configuration maps.
func TestCallersCannotUseWebhooks(t *testing.T) {
	s, reached := newEventServer("git", "push"), 0
	s.AddExtension(extensionEvents, map[string]any{"listChanged": true, "webhook": map[string]any{}})
	for _, method := range []string{"events/subscribe", "events/unsubscribe"} {
		s.HandleMethod(method, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			reached++
			return mcp.EmptyResult{}, nil
		}))
	}
	single := eventHost(t, map[string]*eventServer{"git": s}, host.Options{})
	merged := openFakes(t, map[string]*fakeProcess{"git": {handler: s}, "db": {handler: newEventServer("db", "push")}},
		`{"servers":{"git":{"methods":["events/*"]}}}`)
	for _, h := range []*host.Host{single, merged} {
		for _, server := range []string{"", "git"} {
			for _, name := range []string{"bob", "eve"} {
				c := client(t, h, &policy.Caller{Principal: principal(name), Server: server})
				for _, method := range []string{"events/subscribe", "events/unsubscribe"} {
					_, err := c.Do(t.Context(), method, params("changed", "delivery",
						map[string]any{"mode": "webhook", "url": "https://hooks.example/a"}))
					wantFault(t, err, mcp.CodeMethodNotFound)
				}
				text, _ := json.Marshal(c.Capabilities().Extensions[extensionEvents])
				list, err := c.Do(t.Context(), "events/list", nil)
				if string(text) != `{"listChanged":true}` || err != nil || strings.Contains(string(list), "webhook") {
					t.Errorf("%s at %q: got capability %s, list %s, %v", name, server, text, list, err)
				}
			}
		}
	}
	if reached > 0 {
		t.Errorf("the server received %d requests about webhooks", reached)
	}
}

// Principals share neither streams nor kept events, and the cursor of one server is refused for another.
func TestIsolationOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEventServer("git", "push")
		h := eventHost(t, map[string]*eventServer{"git": s, "db": newEventServer("db", "push")}, host.Options{})
		bob := client(t, h, &policy.Caller{Principal: principal("bob")})
		eve := client(t, h, &policy.Caller{Principal: principal("eve")})
		first, err := poll(t, bob, params("git__changed"))
		if err != nil {
			t.Fatal(err)
		}
		s.emit(`{"n":1}`)
		<-time.After(time.Second)
		if p, err := poll(t, eve, params("git__changed")); err != nil || len(p.Events) != 0 {
			t.Errorf("got %+v, %v", p, err)
		}
		if s.opened != 2 {
			t.Errorf("got %d streams, want 2", s.opened)
		}
		// The cursor of bob names his kept events: for eve, only the position at the server counts.
		if _, err := poll(t, eve, params("git__changed", "cursor", first.Cursor)); err != nil || s.opened != 3 {
			t.Errorf("got %v, %d streams", err, s.opened)
		}
		_, err = poll(t, bob, params("db__changed", "cursor", first.Cursor))
		wantFault(t, err, mcp.CodeInvalidParams)
		_, err = poll(t, bob, params("git__changed", "cursor", "x"))
		wantFault(t, err, mcp.CodeInvalidParams)
	})
}

// A stream continues from its cursor when the server ends and starts again.
func TestEventsAfterRestart(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		synctest.Test(t, func(t *testing.T) {
			s := newEventServer("git", mode)
			process := &fakeProcess{handler: s}
			h := openFakes(t, map[string]*fakeProcess{"git": process}, "{}")
			c := client(t, h, &policy.Caller{})
			pushed := stream(t, c, params("git__changed"))
			synctest.Wait()
			s.emit(`{"n":1}`)
			<-time.After(5 * time.Second)
			process.exit()
			synctest.Wait()
			s.emit(`{"n":2}`)
			<-time.After(2 * time.Minute)
			if got := pushed.data(); !slices.Equal(got, []string{`{"n":1}`, `{"n":2}`}) {
				t.Errorf("%s: got %q, errors %+v", mode, got, pushed.received("error"))
			}
			s.terminate(&mcp.Error{Code: -32024, Message: "revoked"})
			<-time.After(time.Minute)
			if end := pushed.received("terminated"); len(end) != 1 || end[0].Error.Code != -32024 {
				t.Errorf("%s: got %+v", mode, end)
			}
			if err := <-pushed.done; err != nil {
				t.Errorf("%s: got %v", mode, err)
			}
		})
	}
}

// A principal has a limited number of subscriptions. Kept events end when their caller stops to poll.
func TestLimitOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEventServer("git", "push")
		h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{})
		c := client(t, h, &policy.Caller{Principal: principal("bob")})
		for n := range 64 {
			if _, err := poll(t, c, map[string]any{"name": "git__changed", "arguments": map[string]any{"n": n}}); err != nil {
				t.Fatal(n, err)
			}
		}
		_, err := poll(t, c, params("git__changed"))
		wantFault(t, err, -32025)
		wantFault(t, <-stream(t, c, params("git__changed")).done, -32025)
		if _, err := poll(t, client(t, h, &policy.Caller{Principal: principal("eve")}), params("git__changed")); err != nil {
			t.Error(err)
		}
		<-time.After(6 * time.Minute)
		if _, err := poll(t, c, params("git__changed")); err != nil {
			t.Error(err)
		}
	})
}

// A change of the list is announced to subscriptions that ask for it.
func TestChangesOfTheListOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := eventHost(t, map[string]*eventServer{"git": newEventServer("git", "push")}, host.Options{})
		c := client(t, h, &policy.Caller{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		agreed := ""
		filter := mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"eventsListChanged": json.RawMessage("true")}}
		for e, err := range c.Listen(ctx, filter) {
			if err != nil || e.Kind == mcp.EventListening {
				agreed = string(e.Filter.Topics["eventsListChanged"])
				break
			}
		}
		if agreed != "true" {
			t.Errorf("agreed to %q", agreed)
		}
	})
}
