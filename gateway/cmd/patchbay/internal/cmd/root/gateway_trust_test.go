package root

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

// A caller of another machine chooses neither the trace of its request nor whether it is recorded.
func TestTracesOfOtherMachinesAreLinks(t *testing.T) {
	for _, test := range []struct {
		name, addr, settings string
		joins                bool
	}{
		{"this machine", "127.0.0.1:0", `{}`, true},
		{"other machines", "0.0.0.0:0", `{}`, false},
		{"other machines with trust", "0.0.0.0:0", `{"trustTraceContext": true}`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			freshVault(t)
			t.Setenv(userdir.EnvState, t.TempDir())
			r := otlptest.New(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
			file := filepath.Join(t.TempDir(), "mcp.json")
			writeFile(t, file, fmt.Sprintf(`{"mcpServers": {"one": %s}, "patchbay": %s}`, demoEntry(t), test.settings))
			g := startGateway(t, nil, "--config", file, "--addr", test.addr)
			o := patchbay(t, "", append([]string{"call", g.url, "add", "a=1", "b=2"}, g.header()...)...)
			if o.status != exit.OK {
				t.Fatalf("call: %+v", o)
			}
			g.stop()
			var sent, served *otlptest.Span
			for _, span := range r.Spans() {
				switch {
				case span.Attribute("gen_ai.tool.name") != "add":
				case span.Resource["service.name"] == observe.ServiceClient:
					sent = span
				case span.Resource["service.name"] == observe.ServiceGateway && span.Kind == tracepb.Span_SPAN_KIND_SERVER:
					served = span
				}
			}
			if sent == nil || served == nil {
				t.Fatal("a span of the call is missing")
			}
			if joins := bytes.Equal(sent.TraceId, served.TraceId); joins != test.joins {
				t.Errorf("the gateway continues the trace of the caller: %t, want %t", joins, test.joins)
			}
			if !test.joins && (len(served.Links) == 0 || !bytes.Equal(served.Links[0].SpanId, sent.SpanId)) {
				t.Errorf("links %v, want the span of the caller", served.Links)
			}
		})
	}
}
