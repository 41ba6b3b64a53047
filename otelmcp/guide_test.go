package otelmcp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// observedServer returns a server over HTTP, and a function that sends what has not been exported yet.
func observedServer(spans sdktrace.SpanExporter, metrics sdkmetric.Reader) (http.Handler, func(context.Context) error) {
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))
	o := otelmcp.New(&otelmcp.Options{TracerProvider: traces, MeterProvider: meters})
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{
		Observer: o,
		Logger:   slog.New(otelmcp.LogHandler(slog.Default().Handler())),
	})
	addTools(s)
	h := mcphttp.NewHandler(s, nil)
	if err := o.ObserveStats(s, h); err != nil {
		panic(err)
	}
	return h, func(ctx context.Context) error {
		return errors.Join(h.Shutdown(ctx), traces.Shutdown(ctx), meters.Shutdown(ctx))
	}
}

// callObserved calls a tool within a span of the program, which becomes the first of the trace.
func callObserved(ctx context.Context, url string, traces *sdktrace.TracerProvider) (int, error) {
	o := otelmcp.New(&otelmcp.Options{TracerProvider: traces})
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, nil), &mcp.ClientOptions{Observer: o})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, span := traces.Tracer("agent").Start(ctx, "answer the user")
	defer span.End()
	return mcp.CallTool[int](ctx, c, "add", map[string]int{"a": 1, "b": 2})
}

// openObserved opens a host whose callers, servers and decisions are observed.
func openObserved(ctx context.Context, file *config.File, o *otelmcp.Observer) (*host.Host, error) {
	h, err := host.Open(ctx, file, &host.Options{Observer: o})
	if err != nil {
		return nil, err
	}
	return h, o.ObserveStats(h)
}

func Example_gateway() {
	ctx := context.Background()
	served := &spanNames{}
	calc, shutdown := observedServer(served, sdkmetric.NewManualReader())
	web := httptest.NewServer(calc)
	defer web.Close()
	file, err := config.Parse(fmt.Appendf(nil, `{"mcpServers": {"calc": {"url": %q}}}`, web.URL))
	if err != nil {
		panic(err)
	}
	own := &spanNames{}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(own))
	h, err := openObserved(ctx, file, otelmcp.New(&otelmcp.Options{TracerProvider: traces}))
	if err != nil {
		panic(err)
	}
	c, err := mcp.Connect(ctx, mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(mcp.CallTool[int](ctx, c, "calc__add", map[string]int{"a": 1, "b": 2}))
	if err := errors.Join(c.Close(), h.Close(), shutdown(ctx)); err != nil {
		fmt.Println(err)
	}
	calls := func(name string) bool { return !strings.HasPrefix(name, "tools/call") }
	fmt.Println("gateway:", slices.DeleteFunc(*own, calls))
	fmt.Println("server:", slices.DeleteFunc(*served, calls))
	// Output:
	// 3 <nil>
	// gateway: [tools/call add tools/call calc__add]
	// server: [tools/call add]
}

func Example_http() {
	ctx := context.Background()
	served := &spanNames{}
	h, shutdown := observedServer(served, sdkmetric.NewManualReader())
	web := httptest.NewServer(h)
	defer web.Close()
	sent := &spanNames{}
	fmt.Println(callObserved(ctx, web.URL, sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent))))
	if err := shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("server:", *served)
	fmt.Println("client:", *sent)
	// Output:
	// 3 <nil>
	// server: [server/discover tools/call add]
	// client: [tools/call add answer the user]
}

// spanNames is an exporter that keeps the names of spans.
type spanNames []string

func (n *spanNames) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		*n = append(*n, s.Name())
	}
	return nil
}

func (*spanNames) Shutdown(context.Context) error { return nil }
