package telemetry

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

// Attributes of the span of a command, of the semantic conventions for programs of a command line.
const (
	attrExitCode  = "process.exit.code"
	attrErrorType = "error.type"
)

// tracerName is the instrumentation scope of the spans of commands.
const tracerName = "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay"

// BeginCommand begins the span of a command, such as "patchbay call", which makes its requests a
// single trace. end ends the span with the exit code. The span contains no arguments: they may be
// secret.
func (e *Exporters) BeginCommand(ctx context.Context, name string) (_ context.Context, end func(code int)) {
	ctx, span := e.Traces.Tracer(tracerName).Start(ctx, name)
	return ctx, func(code int) {
		span.SetAttributes(attribute.Int(attrExitCode, code))
		if code != 0 {
			span.SetAttributes(attribute.String(attrErrorType, strconv.Itoa(code)))
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
