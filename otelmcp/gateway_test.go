package otelmcp_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// newGateway returns a host of the server calc, in this process, with an observer of its own.
func newGateway(t *testing.T, calc mcp.Handler, up mcptest.Combination, o mcp.Observer) *host.Host {
	t.Helper()
	var h *host.Host
	h = openGateway(t, &host.Options{Observer: o, Client: mcp.ClientOptions{Revision: up.Revision}}, func() mcp.Transport {
		transport := mcptest.Transport(t, calc, up.Transport)
		t.Cleanup(func() { _ = h.Close() }) // before the end of the server, which waits for that
		return transport
	})
	return h
}

func openGateway(t testing.TB, o *host.Options, dial func() mcp.Transport) *host.Host {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"calc": {"command": "calc"}, "off": {"command": "off", "disabled": true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = slog.New(slog.DiscardHandler)
	o.Dial = func(context.Context, *config.Server) (mcp.Transport, error) { return dial(), nil }
	h, err := host.Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// The scenarios of TestGolden through a gateway, whose servers have the revision and the transport of the
// client.
func TestGoldenThroughGateway(t *testing.T) {
	for _, scenario := range scenarios {
		if scenario.name == "subscription" || scenario.name == "timeout" {
			continue // end at the gateway, or as a cancellation
		}
		t.Run(scenario.name, func(t *testing.T) {
			spans, metrics := map[string]string{}, map[string]string{}
			for _, on := range oneProcess(mcptest.Combinations()) {
				t.Run(on.String(), func(t *testing.T) {
					r := newTelemetry(t, nil)
					synctest.Test(t, func(t *testing.T) {
						s := newServer(t, r)
						addTask(t, s, r)
						h := newGateway(t, s, on, r)
						if err := h.Start(t.Context()); err != nil {
							t.Fatal(err)
						}
						view := h.For(&policy.Caller{Server: "calc"})
						c := mcptest.Dial(t, view, on, tasks.Declare(&mcp.ClientOptions{Observer: r, Sample: r.think}, nil))
						if _, err := mcp.Collect(c.Tools(t.Context())); err != nil { // the gateway has read the lists
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
						r.within(t.Context(), "app", func(ctx context.Context) { scenario.run(ctx, t, c) })
					})
					spans[on.String()], metrics[on.String()] = callsOf(r.spansText(on.Revision)), callsOf(r.metricsText(t, on.Revision))
				})
			}
			mcptest.Golden(t, filepath.Join("testdata", "gateway-"+scenario.name+".spans.txt"), grouped(spans))
			mcptest.Golden(t, filepath.Join("testdata", "gateway-"+scenario.name+".metrics.txt"), grouped(metrics))
		})
	}
}

// callsOf returns the text of spans or metrics without the trees and lines of what the gateway does for
// itself, such as to read lists: how often depends on when the servers announce changes.
func callsOf(text string) string {
	var kept strings.Builder
	own := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			own = background.MatchString(line)
		}
		if !own {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

var background = regexp.MustCompile(`/list\b|/listen\b|initialize|server/discover|session\.duration|^patchbay\.(requests|sessions|refusals)`)

// A party is one of the programs that a call passes.
type party struct {
	name string
	*telemetry
}

// tree returns the spans of several programs as one tree.
func tree(parties ...party) (text string, traces int) {
	ended := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	names := map[trace.SpanID]string{}
	found := map[trace.TraceID]bool{}
	for _, p := range parties {
		for _, s := range p.spans.Ended() {
			if background.MatchString(s.Name()) {
				continue
			}
			ended[s.Parent().SpanID()] = append(ended[s.Parent().SpanID()], s)
			names[s.SpanContext().SpanID()] = p.name
			found[s.SpanContext().TraceID()] = true
		}
	}
	var b strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		slices.SortStableFunc(ended[parent], func(a, b sdktrace.ReadOnlySpan) int {
			return cmp.Or(a.StartTime().Compare(b.StartTime()), a.EndTime().Compare(b.EndTime()),
				cmp.Compare(a.Name(), b.Name()))
		})
		for _, s := range ended[parent] {
			id := s.SpanContext().SpanID()
			fmt.Fprintf(&b, "%s%s: %s %s\n", indent, names[id], s.SpanKind(), s.Name())
			write(id, indent+"    ")
		}
	}
	write(trace.SpanID{}, "")
	return b.String(), len(found)
}

// A call of a client, through a gateway, to a server that asks the user is one trace, whose parts are known
// to three programs that have nothing in common but messages.
func TestOneTraceThroughGateway(t *testing.T) {
	texts := map[string]string{}
	for _, revisions := range [][2]string{{"2025-06-18", "2025-06-18"}, {"2025-06-18", "2026-07-28"},
		{"2026-07-28", "2025-06-18"}, {"2026-07-28", "2026-07-28"}} {
		name := "client-" + revisions[0] + "/server-" + revisions[1]
		t.Run(name, func(t *testing.T) {
			agent, gateway, calc := newTelemetry(t, nil), newTelemetry(t, nil), newTelemetry(t, nil)
			synctest.Test(t, func(t *testing.T) {
				up := mcptest.Combination{Transport: mcptest.Stdio, Revision: revisions[1]}
				h := newGateway(t, newServer(t, calc), up, gateway)
				if err := h.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				down := mcptest.Combination{Transport: mcptest.HTTP, Revision: revisions[0]}
				think := func(ctx context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
					time.Sleep(time.Second) // so that the spans are in order
					return agent.think(ctx, p)
				}
				c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Observer: agent, Sample: think})
				agent.within(t.Context(), "turn", func(ctx context.Context) {
					res, err := c.CallTool(ctx, "calc__think", nil)
					if err != nil || res.Text() != "42" {
						t.Errorf("got %v, %v", res, err)
					}
				})
			})
			text, traces := tree(party{"agent", agent}, party{"gateway", gateway}, party{"calc", calc})
			if traces != 1 {
				t.Errorf("%d traces, want one:\n%s", traces, text)
			}
			texts[name] = text
		})
	}
	mcptest.Golden(t, filepath.Join("testdata", "gateway-trace.txt"), grouped(texts))
}

// Callers of a gateway choose no labels: not by names that they invent, nor by methods and the names of tools
// that others have.
func TestGatewayInventedNamesAreOneLabel(t *testing.T) {
	r := newTelemetry(t, &otelmcp.Options{}, sdktrace.NeverSample())
	h := newGateway(t, newServer(t, nil), mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, r)
	full, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	limited, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{ReadOnly: true})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	mustCall(t.Context(), t, full, "calc__add", map[string]int{"a": 1, "b": 2})
	for n := range 10_000 {
		if _, err := full.CallTool(t.Context(), fmt.Sprint("calc__", n), nil); err == nil {
			t.Fatal("no error")
		}
	}
	for n := range 100 {
		_, _ = full.GetPrompt(t.Context(), fmt.Sprint("calc__", n), nil)
		_, _ = full.Do(t.Context(), fmt.Sprint("example/", n), nil)
	}
	wantLabels(t, r.labelValues(t, serverDuration, "gen_ai.tool.name"), "_OTHER", "calc__add")
	wantLabels(t, r.labelValues(t, serverDuration, "gen_ai.prompt.name"), "_OTHER")
	wantLabels(t, r.labelValues(t, serverDuration, "mcp.method.name"), "_OTHER", "prompts/get", "server/discover",
		"tools/call")
	wantLabels(t, r.labelValues(t, clientDuration, "patchbay.server"), "calc")
	if _, err := full.CallTool(t.Context(), "calc__fail", nil); err != nil {
		t.Fatal(err)
	}
	other := func() (n int64) {
		for _, p := range r.points(t) {
			tool, _ := p.labels.Value("gen_ai.tool.name")
			if p.name == serverDuration && tool.AsString() == "_OTHER" {
				n += p.n
			}
		}
		return n
	}
	before := other()
	if _, err := limited.CallTool(t.Context(), "calc__fail", nil); err == nil {
		t.Error("a tool was called that the caller does not have")
	}
	if got := other() - before; got != 1 {
		t.Errorf("%d more calls are _OTHER, want that of the tool which the caller does not have", got)
	}
}
