package otelmcp

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// LogHandler returns a handler that adds to each record the span and request of the log call's
// context: trace_id and span_id of the span, and mcp.method and tool of the request. They are
// top-level members even of a logger with groups. An invalid or absent value is omitted. The tool
// is the name that the client sent.
//
// Set a logger with it as the default of package slog, or as the Logger of options.
func LogHandler(next slog.Handler) slog.Handler { return &logHandler{next: next, root: next} }

type logHandler struct {
	next slog.Handler
	// root is next without the groups and attributes of steps. steps is empty before the first
	// group.
	root  slog.Handler
	steps []func(slog.Handler) slog.Handler
}

// Enabled reports whether next is enabled.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle adds the attributes of ctx.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	added := logAttributes(ctx)
	switch {
	case len(added) == 0:
		return h.next.Handle(ctx, r)
	case len(h.steps) == 0:
		r = r.Clone()
		r.AddAttrs(added...)
		return h.next.Handle(ctx, r)
	}
	next := h.root.WithAttrs(added) // before the groups
	for _, step := range h.steps {
		next = step(next)
	}
	return next.Handle(ctx, r)
}

// WithAttrs returns a handler with attributes.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(h.steps) == 0 {
		return LogHandler(h.next.WithAttrs(attrs))
	}
	return h.with(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup returns a handler with a group.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *logHandler) with(step func(slog.Handler) slog.Handler) slog.Handler {
	steps := append(slices.Clone(h.steps), step)
	return &logHandler{next: step(h.next), root: h.root, steps: steps}
}

func logAttributes(ctx context.Context) (attrs []slog.Attr) {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		attrs = append(attrs,
			slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	method, tool := "", ""
	if req := mcp.RequestFrom(ctx); req != nil {
		method, tool = req.Method, stringParam(req, "name")
	} else if op := operationFrom(ctx); op != nil && op.kind != nil {
		method, tool = op.kind.method, op.kind.target
	}
	if method != "" {
		attrs = append(attrs, slog.String("mcp.method", shorten(method, maxLabel)))
	}
	if method == methodCall && tool != "" {
		attrs = append(attrs, slog.String("tool", shorten(tool, maxLabel)))
	}
	return attrs
}
