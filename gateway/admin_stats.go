package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func statsRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/stats", "Figures of the gateway, at this moment and since its start",
		(*adminRequest).stats)}
}

// A statsReport contains the figures of the host and of the gateway. See [host.Stats].
type statsReport struct {
	Started time.Time `json:"started" jsonschema:"of the gateway: the counts begin then"`
	Time    time.Time `json:"time" jsonschema:"of the figures"`

	host.Stats
	Decisions []decisionCount `json:"decisions" jsonschema:"decisions of the policy, without lists"`

	HTTP     mcphttp.Stats `json:"http" jsonschema:"of all paths that serve MCP"`
	Attached int           `json:"attached" jsonschema:"clients that use the gateway through its socket"`
	Readers  int           `json:"readers" jsonschema:"clients that read the events"`
	Events   uint64        `json:"events" jsonschema:"events since the start"`
}

// A decisionCount counts decisions of one kind.
type decisionCount struct {
	About  string `json:"about" jsonschema:"kind of the action, such as call"`
	Effect string `json:"effect" jsonschema:"such as allow, deny or redact"`
	Count  uint64 `json:"count"`
}

func (r *adminRequest) stats(*noQuery) (*statsReport, error) {
	a, s, web := r.admin, r.host().Stats(), r.admin.gateway.Stats()
	s.Servers, s.Approvals, web.Refused = notNil(s.Servers), notNil(s.Approvals), notNil(web.Refused)
	res := &statsReport{Started: a.started.UTC(), Time: time.Now().UTC(), Stats: s, Decisions: []decisionCount{},
		HTTP: web, Attached: a.attached.count(), Readers: int(a.readers.Load()), Events: a.events.last()}
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
