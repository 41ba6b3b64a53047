package root

import (
	"bytes"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
)

// The requests of a command are one trace, also if it fails.
func TestCommandsAreOneTrace(t *testing.T) {
	s := startServe(t)
	tests := []struct {
		args             []string
		verb, code, fail string
	}{
		{[]string{"call", s.url + connect.Endpoint, "add", "a=1", "b=2"}, "patchbay call", "0", ""},
		{[]string{"call", s.url + connect.Endpoint, "deploy", "environment=staging"}, "patchbay call", "5", "5"},
		{[]string{"skills", "list", s.url + connect.Endpoint}, "patchbay skills list", "0", ""},
		{[]string{"ping", "http://127.0.0.1:1/mcp"}, "patchbay ping", "3", "3"},
	}
	for _, test := range tests {
		r := otlptest.New(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
		patchbay(t, "", test.args...)
		var command *otlptest.Span
		for _, span := range r.Spans() {
			if span.Name == test.verb {
				command = span
			}
		}
		if command == nil || command.Attribute("process.exit.code") != "int_value:"+test.code ||
			command.Attribute("error.type") != test.fail || len(command.ParentSpanId) > 0 {
			t.Fatalf("%q: %v", test.args, command)
		}
		for _, span := range r.Spans() {
			if !bytes.Equal(span.TraceId, command.TraceId) {
				t.Errorf("%q: %s is in another trace", test.args, span.Name)
			}
		}
	}
}
