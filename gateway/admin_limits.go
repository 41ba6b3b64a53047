package gateway

import (
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/status"
)

func limitRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/limits", "Limits of servers, callers and tools, and how far they are used",
		(*adminRequest).limits)}
}

// A limitsQuery selects a page of callers.
type limitsQuery struct {
	Subject string `json:"subject,omitzero" jsonschema:"only callers with this subject"`
	Cursor  int    `json:"cursor,omitzero" jsonschema:"nextCursor of the previous page,minimum=0"`
	Limit   int    `json:"limit,omitzero" jsonschema:"callers of a page,minimum=1,maximum=1000"`
}

// A limitsPage contains the limits of all servers and of a page of callers.
type limitsPage struct {
	Servers     []serverLimits  `json:"servers"`
	PerCaller   string          `json:"perCaller" jsonschema:"rate of each caller, such as 20/s burst 40, or off"`
	PerTool     string          `json:"perTool" jsonschema:"rate of a tool by caller"`
	CallsPerDay int64           `json:"callsPerDay,omitzero" jsonschema:"calls of a caller; absent for no limit"`
	BytesPerDay int64           `json:"bytesPerDay,omitzero" jsonschema:"bytes of a caller; absent for no limit"`
	Resets      time.Time       `json:"resets" jsonschema:"next midnight UTC, when the limits of a day begin again"`
	Processes   int             `json:"processes,omitzero" jsonschema:"gateways in the figures; absent for this one"`
	InShares    bool            `json:"inShares,omitzero" jsonschema:"each gateway admits its share, without a store"`
	Callers     []status.Caller `json:"callers" jsonschema:"callers that sent requests since the start of the gateway"`
	NextCursor  int             `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

// serverLimits contains the limits of a server.
type serverLimits struct {
	Name string `json:"name"`
	limitsEntry
}

func (r *adminRequest) limits(q *limitsQuery) (*limitsPage, error) {
	const day = 24 * time.Hour
	op := r.host().Operator()
	s := op.CallerSettings()
	res := &limitsPage{Servers: []serverLimits{}, PerCaller: s.PerCaller.String(), PerTool: s.PerTool.String(),
		CallsPerDay: s.CallsPerDay, BytesPerDay: int64(s.BytesPerDay), Resets: time.Now().UTC().Truncate(day).Add(day)}
	processes, answers := op.LimitSharing()
	res.Processes, res.InShares = processes, processes > 0 && !answers
	for _, u := range r.host().Upstreams() {
		res.Servers = append(res.Servers, serverLimits{u.Name(), newLimitsEntry(&u.Status().Limits)})
	}
	all := op.CallerLimits()
	if q.Subject != "" {
		all = slices.DeleteFunc(all, func(c status.Caller) bool { return c.Subject != q.Subject })
	}
	res.Callers, res.NextCursor = page(all, q.Cursor, limitOr(q.Limit))
	return res, nil
}

func newLimitsEntry(l *status.Limits) limitsEntry {
	return limitsEntry{l.Running, l.Queued, l.Concurrency, l.Queue, l.Instances, l.Breaker,
		l.RetryAfter.Milliseconds(), l.Refused}
}
