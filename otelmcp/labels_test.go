package otelmcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	serverDuration = "mcp.server.operation.duration"
	clientDuration = "mcp.client.operation.duration"
)

// respond sends a request of the newest revision to a server.
func respond(t *testing.T, s mcp.Handler, method, params string) *jsonrpc.Message {
	t.Helper()
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(`{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Driver(s).Respond(context.Background(), req)
}

func wantLabels(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("labels %.200q, want %q", got, want)
	}
}

func TestInventedNamesAreOneLabel(t *testing.T) {
	r := newTelemetry(t, nil)
	s := newServer(t, r)
	respond(t, s, "tools/call", `"name":"add","arguments":{"a":1,"b":2},`)
	for i := range 10_000 {
		respond(t, s, "tools/call", fmt.Sprintf(`"name":"invented-%d",`, i))
		if i%10 == 0 {
			respond(t, s, "prompts/get", fmt.Sprintf(`"name":"invented-%d",`, i))
			respond(t, s, fmt.Sprintf("invented/%d", i), "")
			respond(t, s, "resources/read", fmt.Sprintf(`"uri":"x://invented-%d",`, i))
		}
	}
	wantLabels(t, r.labelValues(t, serverDuration, "gen_ai.tool.name"), "_OTHER", "add")
	wantLabels(t, r.labelValues(t, serverDuration, "gen_ai.prompt.name"), "_OTHER")
	wantLabels(t, r.labelValues(t, serverDuration, "mcp.method.name"), "_OTHER", "prompts/get", "resources/read", "tools/call")
	names := map[string]bool{}
	for _, span := range r.spans.Ended() {
		names[span.Name()] = true
	}
	if len(names) > 6 {
		t.Errorf("%d different names of spans, want few", len(names))
	}
	if n := len(r.points(t)); n > 20 {
		t.Errorf("%d time series, want few", n)
	}
}

// A server of others can have any number of tools, methods and codes.
func TestHostileServerCannotMakeManyLabels(t *testing.T) {
	r := newTelemetry(t, nil)
	n := 0
	hostile := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		switch {
		case req.Method == "server/discover":
			return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`), nil
		case req.Method == "tools/list":
			return mcp.RawResult(`{"tools":[]}`), nil
		case strings.HasPrefix(req.Method, "fail/"):
			n++
			return nil, mcp.Errorf(-n, "no")
		}
		return mcp.RawResult(`{"content":[]}`), nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(hostile), &mcp.ClientOptions{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3_000 {
		mustCall(t.Context(), t, c, fmt.Sprintf("tool-%d", i), nil)
		if i < 500 {
			_, _ = c.Do(t.Context(), fmt.Sprintf("fine/%d", i), nil)
			_, _ = c.Do(t.Context(), fmt.Sprintf("fail/%d", i), nil)
		}
	}
	for label, most := range map[attribute.Key]int{"gen_ai.tool.name": 1_001, "mcp.method.name": 105, "error.type": 30} {
		got := r.labelValues(t, clientDuration, label)
		if len(got) > most || len(got) < 15 || !slices.Contains(got, "_OTHER") {
			t.Errorf("%s has %d values, want at most %d with _OTHER", label, len(got), most)
		}
	}
}

// An operator pays for each value of a label, and reads what they show.
func TestNoLabelNamesASessionResourceOrCaller(t *testing.T) {
	r := newTelemetry(t, nil)
	for _, scenario := range scenarios[:3] { // a result, an error of a tool, and one of the protocol
		overHTTP(t, r, nil, scenario.run)
	}
	allowed := []attribute.Key{"mcp.method.name", "mcp.protocol.version", "gen_ai.tool.name", "gen_ai.prompt.name",
		"gen_ai.operation.name", "network.transport", "network.protocol.name", "network.protocol.version",
		"server.address", "server.port", "error.type", "rpc.response.status_code", "patchbay.role"}
	for _, p := range r.points(t) {
		for _, label := range p.labels.ToSlice() {
			if !slices.Contains(allowed, label.Key) {
				t.Errorf("%s has the label %s", p.name, label.Key)
			}
		}
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	r := newTelemetry(t, nil)
	for range 3 {
		r.Refused(413, "Request Entity Too Large")
	}
	r.Refused(429, "too many sessions")
	wantLabels(t, r.labelValues(t, "patchbay.refusals", "patchbay.reason"), "Request Entity Too Large", "too many sessions")
	if i := slices.IndexFunc(r.points(t), func(p point) bool { return p.n == 3 }); i < 0 {
		t.Error("no time series counts 3 refusals")
	}
}
