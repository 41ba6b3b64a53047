package otelmcp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

func Example() {
	spans := tracetest.NewInMemoryExporter() // a program uses that of OTLP
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	otel.SetTracerProvider(tp)
	ctx, transport := context.Background(), mcp.Transport(nil)

	o := otelmcp.New(nil) // uses the global providers of package otel
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{Observer: o})
	addTools(s)
	transport = mcp.InMemory(s)
	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Observer: o})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	sum, err := mcp.CallTool[string](ctx, c, "add", map[string]int{"a": 1, "b": 2})
	fmt.Println(sum, err)
	for _, s := range spans.GetSpans() {
		fmt.Println(s.SpanKind, s.Name)
	}
	// Output:
	// 3 <nil>
	// server server/discover
	// server tools/call add
	// client tools/call add
}

func ExampleObserver_ObserveStats() {
	reader := sdkmetric.NewManualReader() // a program uses a periodic reader, or Prometheus
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	o := otelmcp.New(&otelmcp.Options{MeterProvider: mp})
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{Observer: o})
	h := mcphttp.NewHandler(s, nil)
	if err := o.ObserveStats(s, h); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o.ObserveStats(reader))
	// Output:
	// otelmcp: ObserveStats: invalid source 0: *metric.ManualReader: must have a method Stats that is known
}

func ExampleLogHandler() {
	var out bytes.Buffer
	log := slog.New(otelmcp.LogHandler(slog.NewJSONHandler(&out, nil)))
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{Logger: log, Observer: otelmcp.New(&otelmcp.Options{
		TracerProvider: sdktrace.NewTracerProvider(),
	})})
	mcp.AddTool(s, &mcp.Tool{Name: "open"}, func(ctx context.Context, _ struct{}) (string, error) {
		log.InfoContext(ctx, "opened")
		return "open", nil
	})
	c, err := mcp.Connect(context.Background(), mcp.InMemory(s), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer c.Close()
	if _, err := c.CallTool(context.Background(), "open", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	line := out.String()
	fmt.Println(strings.Contains(line, `"trace_id":"`), line[strings.Index(line, `"mcp.method"`):])
	// Output:
	// true "mcp.method":"tools/call","tool":"open"}
}
