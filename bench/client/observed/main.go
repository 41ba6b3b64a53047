// Command observed is a client and a server of this project in one process, perhaps with a gateway between
// them, one of which has an observer, for the workloads of observability.
package main

import (
	"context"
	"flag"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

var (
	kind = flag.String("observer", "off", "off, idle, metrics, unsampled or sampled")
	side = flag.String("side", "server", "which has it: server, client or gateway")
)

func main() { rig.ClientMain(open) }

// parent is the span of a client without an observer, which all programs send to their servers.
const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func open(ctx context.Context, _ rig.Target) (*rig.Connection, error) {
	o, err := observer(*kind)
	if err != nil {
		return nil, err
	}
	var h mcp.Handler
	var client mcp.Observer
	tool := echo.Tool
	switch *side {
	case "client":
		client, h = o, patchbay.NewObserved(nil)
	case "gateway":
		tool = echo.GatewayTool(echo.GatewayServer(0), echo.Tool)
		h, err = gateway.View(gateway.Servers{N: 1, Era: echo.Modern, Server: patchbay.NewServer, Observer: o})
	default:
		h = patchbay.NewObserved(o)
	}
	if err != nil {
		return nil, err
	}
	c, err := mcp.Connect(ctx, mcp.InMemory(h), &mcp.ClientOptions{Observer: client})
	if err != nil {
		return nil, err
	}
	return &rig.Connection{Revision: c.Revision(), Echo: func(ctx context.Context, message string) (string, error) {
		if *side != "client" {
			ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Meta: mcp.Meta{"traceparent": parent}})
		}
		return mcp.CallTool[string](ctx, c, tool, map[string]any{"message": message})
	}}, nil
}

func observer(kind string) (mcp.Observer, error) {
	o := &otelmcp.Options{
		TracerProvider: noop.NewTracerProvider(),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	}
	switch kind {
	case "off":
		return nil, nil
	case "idle":
		return idle{}, nil
	case "metrics":
	case "unsampled":
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	case "sampled":
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithSpanProcessor(discard{}))
	default:
		return nil, fmt.Errorf("unknown observer %q", kind)
	}
	return otelmcp.New(o), nil
}

// idle is an observer that does nothing.
type idle struct{}

func (idle) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }
func (idle) End(context.Context, *mcp.Request, mcp.Outcome)            {}

// discard is a span processor that exports nothing: exporters cost what they cost.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }
