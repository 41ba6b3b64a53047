package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/status"
)

func statsRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/stats", "Figures of the gateway, at this moment and since its start",
		(*adminRequest).stats)}
}

// A statsReport contains the figures of the host and of the gateway. See [host.Stats].
type statsReport struct {
	Started time.Time `json:"started" jsonschema:"of the gateway: the counts begin then"`
	Time    time.Time `json:"time" jsonschema:"of the figures"`

	Servers   map[status.State]int        `json:"servers" jsonschema:"number of servers by state"`
	Instances int                         `json:"instances" jsonschema:"connections and attempts to connect"`
	Processes int                         `json:"processes" jsonschema:"processes of servers that are commands"`
	Most      int                         `json:"maxProcesses" jsonschema:"the setting limits.processes"`
	Requests  int                         `json:"requests" jsonschema:"requests to servers in progress"`
	Suspended int                         `json:"suspended" jsonschema:"wait for an answer of their caller"`
	ByServer  map[string]host.ServerStats `json:"byServer"`
	Decisions []decisionCount             `json:"decisions" jsonschema:"decisions of the policy, without lists"`
	Approvals map[string]uint64           `json:"approvals" jsonschema:"requests that required an approval, by outcome"`

	Spilled        int    `json:"spilled" jsonschema:"results that are kept for their callers"`
	SpilledBytes   int    `json:"spilledBytes" jsonschema:"size of these results"`
	RecordsWaiting int    `json:"recordsWaiting" jsonschema:"records that wait to be stored"`
	RecordsLost    uint64 `json:"recordsLost" jsonschema:"records that were not stored"`

	HTTP     httpStatsEntry `json:"http" jsonschema:"of all paths that serve MCP"`
	Attached int            `json:"attached" jsonschema:"clients that use the gateway through its socket"`
	Readers  int            `json:"readers" jsonschema:"clients that read the events"`
	Events   uint64         `json:"events" jsonschema:"events since the start"`
}

// A decisionCount counts decisions of one kind.
type decisionCount struct {
	About  string `json:"about" jsonschema:"kind of the action, such as call"`
	Effect string `json:"effect" jsonschema:"such as allow, deny or redact"`
	Count  uint64 `json:"count"`
}

// An httpStatsEntry contains the figures of HTTP. See [mcphttp.Stats].
type httpStatsEntry struct {
	Sessions      int              `json:"sessions" jsonschema:"open sessions"`
	Streams       int              `json:"streams" jsonschema:"streams of sessions in progress"`
	Subscriptions int              `json:"subscriptions" jsonschema:"subscriptions in progress"`
	InFlight      int              `json:"inFlight" jsonschema:"other requests in progress"`
	Refused       map[string]int64 `json:"refused" jsonschema:"requests with a status of 400 or more, by reason"`
}

func (r *adminRequest) stats(*noQuery) (*statsReport, error) {
	a, s, web := r.admin, r.host().Stats(), r.admin.gateway.Stats()
	res := &statsReport{Started: a.started.UTC(), Time: time.Now().UTC(), Servers: notNil(s.Servers),
		Instances: s.Instances, Processes: s.Processes, Most: s.MaxProcesses, Requests: s.Requests,
		Suspended: s.Suspended, ByServer: s.ByServer, Decisions: []decisionCount{},
		Approvals: notNil(s.Approvals), Spilled: s.Spilled, SpilledBytes: s.SpilledBytes,
		RecordsWaiting: s.RecordsWaiting, RecordsLost: s.RecordsLost,
		HTTP:     httpStatsEntry{web.Sessions, web.Streams, web.Subscriptions, web.InFlight, notNil(web.Refused)},
		Attached: a.attached.count(), Readers: int(a.readers.Load()), Events: a.events.last()}
	kinds := slices.SortedFunc(maps.Keys(s.Decisions), func(a, b host.DecisionKind) int {
		return cmp.Or(cmp.Compare(a.About, b.About), cmp.Compare(a.Effect, b.Effect))
	})
	for _, kind := range kinds {
		res.Decisions = append(res.Decisions, decisionCount{string(kind.About), kind.Effect, s.Decisions[kind]})
	}
	return res, nil
}

// notNil returns a map that JSON encodes as an object.
func notNil[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}
