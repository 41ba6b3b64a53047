package otelmcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/patchbay-mcp/patchbay/otelmcp"
)

func TestLogsHaveIDsOfTrace(t *testing.T) {
	r := newTelemetry(t, nil)
	ctx, span := r.tracer.Start(t.Context(), "app")
	defer span.End()
	for name, use := range map[string]func(*slog.Logger) *slog.Logger{
		"plain":      func(l *slog.Logger) *slog.Logger { return l },
		"attributes": func(l *slog.Logger) *slog.Logger { return l.With("a", 1) },
		"groups": func(l *slog.Logger) *slog.Logger {
			return l.With("a", 1).WithGroup("g").With("b", 2).WithGroup("h")
		},
	} {
		var out bytes.Buffer
		log := use(slog.New(otelmcp.LogHandler(slog.NewJSONHandler(&out, nil))))
		log.InfoContext(ctx, "with", "x", 1)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["trace_id"] != span.SpanContext().TraceID().String() || line["span_id"] != span.SpanContext().SpanID().String() {
			t.Errorf("%s: %s", name, out.String())
		}
		if g, _ := line["g"].(map[string]any); name == "groups" && (g["b"] != 2.0 || g["h"].(map[string]any)["x"] != 1.0) {
			t.Errorf("%s: %s", name, out.String())
		}
		out.Reset()
		log.InfoContext(context.Background(), "without")
		if bytes.Contains(out.Bytes(), []byte("trace_id")) {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
