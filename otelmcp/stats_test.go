package otelmcp_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type fakeHost struct{}

func (fakeHost) Stats() host.Stats {
	return host.Stats{
		ByServer: map[string]host.ServerStats{
			"calc": {State: status.Ready, Instances: 3, Requests: 4, Suspended: 5, Queued: 6, Held: 7,
				Breaker: status.BreakerClosed, Restarts: 8, Quarantined: 9,
				Errors:  map[hosterr.Code]uint64{hosterr.CodeTimeout: 10, hosterr.CodeDenied: 11},
				Limited: map[string]uint64{"limits.perCaller": 12}},
			"shop": {State: status.Backoff, Breaker: status.BreakerOpen},
		},
		Decisions: map[host.DecisionKind]uint64{{About: policy.ActionCall, Effect: "deny"}: 13,
			{About: policy.ActionResult, Effect: "redact"}: 14},
		Approvals: map[string]uint64{"approved": 15}, Spilled: 16, SpilledBytes: 17, RecordsWaiting: 18, RecordsLost: 19,
	}
}

type fakeTasks struct{}

func (fakeTasks) Stats() tasks.Stats { return tasks.Stats{Running: 6, Queued: 7} }

type fakeHandler struct{}

func (fakeHandler) Stats() mcphttp.Stats { return mcphttp.Stats{Streams: 8, Subscriptions: 9} }

type fakeServer struct{}

func (fakeServer) Stats() mcp.ServerStats {
	return mcp.ServerStats{Tools: 1, Prompts: 2, Resources: 3, Templates: 4, Subscriptions: 5}
}

func TestStatsAreGauges(t *testing.T) {
	r := newTelemetry(t, nil)
	if err := r.ObserveStats(fakeHost{}, "text"); err == nil {
		t.Error("no error for a string")
	}
	if err := r.ObserveStats(fakeHost{}, fakeTasks{}, fakeTasks{}, fakeHandler{}, fakeServer{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.points(t) {
		if p.name != "patchbay.requests.active" && p.name != "patchbay.sessions" {
			got = append(got, fmt.Sprintf("%s{%s} %d", p.name, attributesText(p.labels.ToSlice(), ""), p.n))
		}
	}
	slices.Sort(got)
	want := []string{
		"patchbay.features{patchbay.kind=prompt} 2",
		"patchbay.features{patchbay.kind=resource_template} 4",
		"patchbay.features{patchbay.kind=resource} 3",
		"patchbay.features{patchbay.kind=tool} 1",
		"patchbay.host.approvals{patchbay.outcome=approved} 15",
		"patchbay.host.breakers{patchbay.server=calc patchbay.state=closed} 1",
		"patchbay.host.breakers{patchbay.server=shop patchbay.state=open} 1",
		"patchbay.host.decisions{patchbay.effect=deny patchbay.kind=call} 13",
		"patchbay.host.decisions{patchbay.effect=redact patchbay.kind=result} 14",
		"patchbay.host.errors{patchbay.code=denied patchbay.server=calc} 11",
		"patchbay.host.errors{patchbay.code=timeout patchbay.server=calc} 10",
		"patchbay.host.instances{patchbay.server=calc} 3",
		"patchbay.host.instances{patchbay.server=shop} 0",
		"patchbay.host.limited{patchbay.limit=limits.perCaller patchbay.server=calc} 12",
		"patchbay.host.quarantined{patchbay.server=calc} 9",
		"patchbay.host.quarantined{patchbay.server=shop} 0",
		"patchbay.host.records.lost{} 19",
		"patchbay.host.records.waiting{} 18",
		"patchbay.host.requests{patchbay.phase=active patchbay.server=calc} 4",
		"patchbay.host.requests{patchbay.phase=active patchbay.server=shop} 0",
		"patchbay.host.requests{patchbay.phase=held patchbay.server=calc} 7",
		"patchbay.host.requests{patchbay.phase=held patchbay.server=shop} 0",
		"patchbay.host.requests{patchbay.phase=queued patchbay.server=calc} 6",
		"patchbay.host.requests{patchbay.phase=queued patchbay.server=shop} 0",
		"patchbay.host.requests{patchbay.phase=suspended patchbay.server=calc} 5",
		"patchbay.host.requests{patchbay.phase=suspended patchbay.server=shop} 0",
		"patchbay.host.restarts{patchbay.server=calc} 8",
		"patchbay.host.restarts{patchbay.server=shop} 0",
		"patchbay.host.servers{patchbay.server=calc patchbay.state=ready} 1",
		"patchbay.host.servers{patchbay.server=shop patchbay.state=backoff} 1",
		"patchbay.host.spilled.results{} 16",
		"patchbay.host.spilled.size{} 17",
		"patchbay.streams{patchbay.kind=session} 8",
		"patchbay.streams{patchbay.kind=subscription} 9",
		"patchbay.subscriptions{} 5",
		"patchbay.tasks{patchbay.phase=queued} 14",
		"patchbay.tasks{patchbay.phase=running} 12",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestStatsOfSources(t *testing.T) {
	r := newTelemetry(t, nil)
	s := newServer(t, r)
	ts := tasks.NewServer(s, nil)
	defer ts.Close(t.Context())
	h := mcphttp.NewHandler(s, nil)
	if err := r.ObserveStats(s, ts, h); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.points(t) {
		if v, _ := p.labels.Value("patchbay.kind"); v.String() == "tool" && p.n == 6 {
			return
		}
	}
	t.Errorf("got %v, want 6 tools", r.points(t))
}
