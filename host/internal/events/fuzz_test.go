package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A cursor that a caller receives must be accepted, whatever cursor the server chose.
func FuzzParseCursor(f *testing.F) {
	f.Add("", "builds", true)
	f.Add(*(&Cursor{Server: "builds", Position: new("7"), Lease: "l", Index: 3}).Text(), "builds", true)
	f.Add("eyJzIjoiYSIsImMiOiIxIn0", "b", true)
	f.Add("7", "builds", false)
	f.Add(strings.Repeat("x", maxCursor), "builds", false)
	f.Fuzz(func(t *testing.T, text, server string, fromCaller bool) {
		c := Cursor{Server: server, Position: &text}
		if fromCaller {
			var err error
			c, err = ParseCursor(&text, server)
			if e, ok := errors.AsType[*mcp.Error](err); err != nil && (!ok || e.Code != mcp.CodeInvalidParams) {
				t.Fatalf("got error %v, want code %d", err, mcp.CodeInvalidParams)
			}
			if err != nil {
				return
			}
			if c.Server != server || len(text) > maxCursor {
				t.Errorf("accepted %.80q of the server %q for %q", text, c.Server, server)
			}
		}
		sent := c.Text()
		if sent == nil {
			return
		}
		if again, err := ParseCursor(sent, server); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v was sent as %.80q and read as %+v, %v", c, *sent, again, err)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	f.Add(`{"name":"build.finished","arguments":{"branch":"main"},"cursor":"7","maxAgeMs":1,"maxEvents":2}`)
	f.Add(`{"name":"e","arguments":null,"cursor":null,"_meta":{"a":1}}`)
	f.Add(`{"name":"e","arguments":[],"maxAgeMs":-1}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, params string) {
		r, err := ParseRequest(json.RawMessage(params))
		if err != nil {
			if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != mcp.CodeInvalidParams {
				t.Errorf("got error %v, want code %d", err, mcp.CodeInvalidParams)
			}
			return
		}
		if r.Arguments != nil && !jsonscan.IsObject(r.Arguments) || r.MaxEvents < 0 || r.MaxAge != nil && *r.MaxAge < 0 {
			t.Errorf("accepted %s", params)
		}
		sent, err := jsonv2.Marshal(r) // to the server
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseRequest(sent); err != nil || again.Name != r.Name || again.MaxEvents != r.MaxEvents ||
			!reflect.DeepEqual(again.Cursor, r.Cursor) || !reflect.DeepEqual(again.MaxAge, r.MaxAge) {
			t.Errorf("%s was sent as %s, %v", params, sent, err)
		}
	})
}

// checkEvent checks an event that a caller receives.
func checkEvent(t *testing.T, e *Event) {
	t.Helper()
	sent, err := jsonv2.Marshal(e)
	if err != nil || e.ID == "" || len(e.ID) > maxID || !jsonscan.IsObject(e.Data) {
		t.Errorf("got event %+v, %s, %v", e, sent, err)
	}
}

func FuzzParseResult(f *testing.F) {
	const event = `{"eventId":"1","name":"e","timestamp":"2026-12-01T00:00:00Z","data":{"n":1},"_meta":{}}`
	f.Add(`{"events":[` + event + `],"cursor":"1","truncated":true,"hasMore":true,"nextPollMs":1000}`)
	f.Add(`{"events":[` + event + `,null,7,{"eventId":""},{"eventId":"2","data":[]}],"cursor":null}`)
	f.Add(`{"events":[],"nextPollMs":1e300}`)
	f.Add(`{"events":[],"nextPollMs":-1.5}`)
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := ParseResult(json.RawMessage(raw))
		if err != nil {
			return
		}
		var given batch
		if err := jsonv2.Unmarshal([]byte(raw), &given); err == nil && len(r.Events)+r.Failed != len(given.Events) {
			t.Errorf("got %d events and %d failed of %d", len(r.Events), r.Failed, len(given.Events))
		}
		if r.NextPoll < 0 || r.NextPoll > maxPoll.Milliseconds() {
			t.Errorf("got the interval %d", r.NextPoll)
		}
		for i := range r.Events {
			checkEvent(t, &r.Events[i])
		}
		sent, err := jsonv2.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseResult(sent); err != nil || again.Failed != 0 || len(again.Events) != len(r.Events) {
			t.Errorf("%s was sent as %s, %v", raw, sent, err)
		}
	})
}

func FuzzNotifications(f *testing.F) {
	f.Add(Active, `{"cursor":"7","truncated":true}`)
	f.Add(Occurred, `{"eventId":"1","name":"e","timestamp":"2026-12-01T00:00:00Z","data":{"n":1},"cursor":null}`)
	f.Add(Heartbeat, `{}`)
	f.Add(Failed, `{"error":{"code":-32603,"message":"`+strings.Repeat("ä", maxMessage)+`","data":{"a":1}}}`)
	f.Add(Terminated, `{"error":{"code":-32024,"message":"a`+strings.Repeat("ä", maxMessage)+`","data":[]}}`)
	f.Add(Terminated, `{"error":null}`)
	f.Fuzz(func(t *testing.T, method, params string) {
		n := &notification{method, json.RawMessage(params)}
		yields := 0
		more, err := n.yield(func(i Item) bool {
			if yields++; i.Event != nil {
				checkEvent(t, i.Event)
			}
			checkFault(t, i.Err)
			return true
		})
		if checkFault(t, err); more == (err != nil) || !more && yields > 0 || err != nil && !IsFinal(err) {
			t.Errorf("got more: %t, error %v, %d items", more, err, yields)
		}
	})
}

// checkFault checks that a caller can receive an error of a server.
func checkFault(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*mcp.Error](err)
	if !ok {
		return
	}
	if sent, err := jsonv2.Marshal(e); err != nil || len(e.Message) > maxMessage || len(e.Data) > maxMessage {
		t.Errorf("got error %v, %s, %v", e, sent, err)
	}
}
