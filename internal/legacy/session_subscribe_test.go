package legacy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

func (c *client) wantFilters(want ...string) {
	c.Helper()
	if diff := cmp.Diff(want, c.core.filters()); diff != "" {
		c.Errorf("filters of the core (-want +got):\n%s", diff)
	}
}

// Requirement: LIFE-06
func TestNothingIsPushedBeforeInitialized(t *testing.T) {
	core := &fakeCore{discovered: discovered}
	c := &client{T: t, core: core}
	c.session, _ = legacy.Initialize(t.Context(), config(core), initialize("2025-06-18"))
	c.session.Attach(c.out.write)
	c.wantFilters()
	c.handle(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.wantFilters(`{"toolsListChanged":true}`) // as the server declared
	c.handle(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.wantFilters(`{"toolsListChanged":true}`)
}

func TestChangesArePushedInTheRevisionsForm(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{})
	c.session.Attach(c.out.write)
	c.want(c.out.take()) // the acknowledgement is not sent to the client
	c.core.notify("notifications/tools/list_changed", `{"_meta":{"io.modelcontextprotocol/subscriptionId":"session"}}`)
	c.core.notify("notifications/resources/updated", `{"uri":"x:y","_meta":{"io.modelcontextprotocol/subscriptionId":"session","a":1}}`)
	c.want(c.out.take(),
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y","_meta":{"a":1}}}`)
}

// Sessions of one server share the last change. It must have the form of their revision, and must
// not alias the core's memory.
func TestSameChangeForAllRevisions(t *testing.T) {
	core := &fakeCore{discovered: discovered}
	shared := config(core)
	versions := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2025-03-26", "2024-11-05"}
	clients := make([]*client, len(versions))
	for i, version := range versions {
		c := &client{T: t, core: core}
		c.session, _ = legacy.Initialize(t.Context(), shared, initialize(version))
		c.handle(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.session.Attach(c.out.write)
		clients[i] = c
	}
	const updated = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"%s"}}`
	const status = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"uri":"x:1"}}`
	params := []byte(`{"uri":"x:1","_meta":{"io.modelcontextprotocol/subscriptionId":"session"}}`)
	for _, l := range core.open {
		l.notify("notifications/resources/updated", params)
		l.notify("notifications/tasks/status", params) // only 2025-11-25 has it
	}
	for _, uri := range []string{"x:2", "x:3"} {
		copy(params, `{"uri":"`+uri) // the core may change it
		for _, l := range core.open {
			l.notify("notifications/resources/updated", params)
		}
	}
	for i, c := range clients {
		want := []string{fmt.Sprintf(updated, "x:1"), fmt.Sprintf(updated, "x:2"), fmt.Sprintf(updated, "x:3")}
		if versions[i] == "2025-11-25" {
			want = slices.Insert(want, 1, status)
		}
		c.want(c.out.take(), want...)
	}
	big := []byte(`{"uri":"` + strings.Repeat("x", 1<<20) + `"}`)
	for _, l := range core.open {
		l.notify("notifications/resources/updated", big)
	}
	for _, c := range clients {
		c.want(c.out.take(), fmt.Sprintf(updated, strings.Repeat("x", 1<<20)))
	}
}

func TestChangeForManySessionsIsProjectedOnce(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{})
	var sent []*jsonrpc.Message
	c.session.Attach(func(_ context.Context, m *jsonrpc.Message) error {
		sent = append(sent, m)
		return nil
	})
	params := []byte(`{"uri":"x:1","_meta":{"io.modelcontextprotocol/subscriptionId":"session"}}`)
	for range 2 {
		c.core.open[0].notify("notifications/resources/updated", params)
	}
	if len(sent) != 2 || sent[0] != sent[1] {
		t.Errorf("sent %v, want the same message twice", sent)
	}
}

func TestSessionListensOnlyWhileAttached(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{})
	c.wantFilters()
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:1"}}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	c.wantFilters()
	c.session.Attach(c.out.write)
	c.wantFilters(`{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}`)
	c.session.Attach(nil)
	c.wantFilters()
	c.session.Attach(c.out.write)
	c.wantFilters(`{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}`)
	c.session.Close(errors.New("over"))
	c.wantFilters()
	c.session.Attach(c.out.write)
	c.wantFilters()
}

// Two open subscriptions with the same filter would send each change twice.
func TestEqualSubscriptionIsKept(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{})
	c.session.Attach(c.out.write)
	before := c.core.open[0]
	c.session.Attach(c.out.write)
	c.handle(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if len(c.core.open) != 1 || c.core.open[0] != before {
		t.Error("Attach replaced a subscription with the same filter")
	}
}

func TestSubscribeAndUnsubscribe(t *testing.T) {
	c := connect(t, "2024-11-05", &fakeCore{})
	c.session.Attach(c.out.write)
	for i, step := range []struct{ method, uri, want string }{
		{"subscribe", "x:1", `{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}`},
		{"subscribe", "x:2", `{"toolsListChanged":true,"resourceSubscriptions":["x:1","x:2"]}`},
		{"subscribe", "x:1", `{"toolsListChanged":true,"resourceSubscriptions":["x:1","x:2"]}`},
		{"unsubscribe", "x:1", `{"toolsListChanged":true,"resourceSubscriptions":["x:2"]}`},
		{"unsubscribe", "x:9", `{"toolsListChanged":true,"resourceSubscriptions":["x:2"]}`},
		{"unsubscribe", "x:2", `{"toolsListChanged":true}`},
	} {
		c.want(c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/%s","params":{"uri":"%s"}}`, i, step.method, step.uri)),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		c.wantFilters(step.want)
	}
}

func TestInvalidSubscribe(t *testing.T) {
	subscribe := func(c *client, params string) string {
		return strings.Join(c.handle(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":`+params+`}`), "\n")
	}
	c := connect(t, "2025-06-18", &fakeCore{discovered: `{"capabilities":{"resources":{}}}`})
	if got := subscribe(c, `{"uri":"x:1"}`); !strings.Contains(got, "-32601") {
		t.Errorf("without the capability: %s", got)
	}
	c = connect(t, "2025-06-18", &fakeCore{})
	for _, params := range []string{`{}`, `{"uri":1}`, `{"uri":""}`, `[]`, `{"uri":"` + strings.Repeat("x", 8<<10+1) + `"}`} {
		if got := subscribe(c, params); !strings.Contains(got, "-32602") {
			t.Errorf("%.40s: %s", params, got)
		}
	}
	for i := range 1000 {
		if got := subscribe(c, fmt.Sprintf(`{"uri":"x:%d"}`, i)); !strings.Contains(got, "result") {
			t.Fatalf("subscription %d: %s", i, got)
		}
	}
	if got := subscribe(c, `{"uri":"x:1000"}`); !strings.Contains(got, "-32600") {
		t.Errorf("subscription 1001: %s", got)
	}
	c = connect(t, "2025-06-18", &fakeCore{})
	for i := range 32 {
		subscribe(c, fmt.Sprintf(`{"uri":"x:%d%s"}`, i, strings.Repeat("x", 8<<10-4)))
	}
	if got := subscribe(c, `{"uri":"`+strings.Repeat("x", 8<<10)+`"}`); !strings.Contains(got, "-32600") {
		t.Errorf("subscriptions of more than 256 KiB: %.100s", got)
	}
}

func TestFailedSubscribeChangesNothing(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{})
	c.session.Attach(c.out.write)
	c.core.refusal = &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "not this one"}
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:1"}}`),
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"not this one"}}`)
	c.core.refusal = errors.New("secret detail")
	c.want(c.handle(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x:1"}}`),
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"internal error"}}`)
	c.wantFilters(`{"toolsListChanged":true}`)
	c.core.refusal = nil
	c.handle(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"x:2"}}`)
	c.wantFilters(`{"toolsListChanged":true,"resourceSubscriptions":["x:2"]}`)
}
