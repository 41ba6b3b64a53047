package otelmcp_test

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// discard is an exporter that costs nothing.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

const benchParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

type nothing struct{}

func (nothing) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }
func (nothing) End(context.Context, *mcp.Request, mcp.Outcome)            {}

// observers returns the observers of the benchmarks by name.
func observers() map[string]func() mcp.Observer {
	meters := func() *sdkmetric.MeterProvider {
		return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	traces := func(s sdktrace.Sampler) func() mcp.Observer {
		return func() mcp.Observer {
			return otelmcp.New(&otelmcp.Options{MeterProvider: meters(), TracerProvider: sdktrace.NewTracerProvider(
				sdktrace.WithSampler(s), sdktrace.WithSpanProcessor(discard{}))})
		}
	}
	return map[string]func() mcp.Observer{
		"off":     func() mcp.Observer { return nil },
		"nothing": func() mcp.Observer { return nothing{} },
		"metrics": func() mcp.Observer {
			return otelmcp.New(&otelmcp.Options{MeterProvider: meters(), TracerProvider: tracenoop.NewTracerProvider()})
		},
		"not-sampled": traces(sdktrace.NeverSample()),
		"sampled":     traces(sdktrace.AlwaysSample()),
	}
}

// BenchmarkServer measures a call that a server receives.
func BenchmarkServer(b *testing.B) {
	for _, name := range []string{"off", "nothing", "metrics", "not-sampled", "sampled"} {
		for _, parent := range []bool{false, true} {
			params := `{"name":"add","arguments":{"a":1,"b":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientCapabilities":{}`
			title := name + "/root"
			if parent {
				params += `,"traceparent":"` + benchParent + `"`
				title = name + "/child"
			}
			params += "}}"
			b.Run(title, func(b *testing.B) {
				s := mcp.NewServer("calc", "1", &mcp.ServerOptions{Observer: observers()[name]()})
				addTools(s)
				msg := &jsonrpc.Message{ID: jsonrpc.IntID(7), Method: "tools/call", Params: []byte(params)}
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					req, err := mcp.NewRequest(msg)
					if err != nil {
						b.Fatal(err)
					}
					if m := mcp.Driver(s).Respond(ctx, req); m.Error != nil {
						b.Fatal(m.Error)
					}
				}
			})
		}
	}
}

// BenchmarkClient measures a call of a client whose server has no observer.
func BenchmarkClient(b *testing.B) {
	for _, name := range []string{"off", "nothing", "metrics", "not-sampled", "sampled"} {
		b.Run(name, func(b *testing.B) {
			s := mcp.NewServer("calc", "1", nil)
			addTools(s)
			c, err := mcp.Connect(b.Context(), mcp.InMemory(s), &mcp.ClientOptions{Observer: observers()[name]()})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.CallTool(ctx, "add", map[string]int{"a": 1, "b": 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGateway measures a call through a host, whose caller and server have no observers.
func BenchmarkGateway(b *testing.B) {
	for _, name := range []string{"off", "nothing", "metrics", "not-sampled", "sampled"} {
		b.Run(name, func(b *testing.B) {
			s := mcp.NewServer("calc", "1", nil)
			addTools(s)
			h := openGateway(b, &host.Options{Observer: observers()[name]()}, func() mcp.Transport { return mcp.InMemory(s) })
			c, err := mcp.Connect(b.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			ctx := mcp.WithCallOptions(context.Background(), mcp.CallOptions{Meta: mcp.Meta{"traceparent": benchParent}})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.CallTool(ctx, "calc__add", map[string]int{"a": 1, "b": 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

func addTools(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in pair) (int, error) { return in.A + in.B, nil })
}
