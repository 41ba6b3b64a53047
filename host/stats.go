package host

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// Stats contains figures of a [Host]: at one moment, or since it was opened.
type Stats struct {
	Servers   map[status.State]int `json:"servers" jsonschema:"number of servers by state"`
	Instances int                  `json:"instances" jsonschema:"connections and attempts to connect"`
	// Processes is the number of processes of commands, and MaxProcesses the most of them; see
	// [config.CallerLimits.Processes].
	Processes    int `json:"processes" jsonschema:"processes of servers that are commands"`
	MaxProcesses int `json:"maxProcesses" jsonschema:"the setting limits.processes"`
	Requests     int `json:"requests" jsonschema:"requests to servers in progress"`
	Suspended    int `json:"suspended" jsonschema:"wait for an answer of their caller"`
	// ByServer contains the figures of each server by its name in the configuration.
	ByServer map[string]ServerStats `json:"byServer"`
	// Decisions counts the decisions of the policy about requests, results and questions. Decisions
	// about lists do not count.
	Decisions map[DecisionKind]uint64 `json:"-"`
	// Approvals counts the requests that required an approval, by outcome: "approved", "granted"
	// (by an earlier approval), "denied", "expired", "cancelled", or "failed" if no channel could
	// ask.
	Approvals    map[string]uint64 `json:"approvals" jsonschema:"requests that required an approval, by outcome"`
	Spilled      int               `json:"spilled" jsonschema:"results that are kept for their callers"`
	SpilledBytes int               `json:"spilledBytes" jsonschema:"size of these results"`
	// RecordsWaiting counts the records that wait to be stored, and RecordsLost the lost records.
	// The figures come from the method Backlog() (waiting int, lost uint64) of the Recorder, or of
	// the Recorder that its method Unwrap() Recorder returns. Without such a method, RecordsLost
	// counts the records for which the Recorder returned an error.
	RecordsWaiting int    `json:"recordsWaiting" jsonschema:"records that wait to be stored"`
	RecordsLost    uint64 `json:"recordsLost" jsonschema:"records that were not stored"`
}

// A DecisionKind is a kind of decisions of a [policy.Policy].
type DecisionKind struct {
	About policy.ActionKind
	// Effect is the text of the decision's [policy.Outcome], or "redact" for a result of which the
	// caller receives a part.
	Effect string
}

// ServerStats contains figures of a server, since it was configured or at one moment.
type ServerStats struct {
	State     status.State `json:"state"`
	Instances int          `json:"instances"` // connections and attempts to connect
	// Requests counts the requests in progress at the server, Suspended the requests that wait for
	// an answer of their caller, Queued the requests that wait for their turn, and Held the
	// requests that wait for the approval of the operator.
	Requests  int            `json:"requests"`
	Suspended int            `json:"suspended"`
	Queued    int            `json:"queued"`
	Held      int            `json:"held"`
	Breaker   status.Breaker `json:"breaker,omitzero"`
	// Restarts counts connections and attempts to connect that follow a failure or replace a
	// connection.
	Restarts uint64 `json:"restarts"`
	// Errors counts requests without a valid response of the server, by code. Requests that callers
	// cancelled do not count.
	Errors map[hosterr.Code]uint64 `json:"errors,omitzero"`
	// Limited counts requests that a setting refused, by setting; see [status.Limits].
	Limited map[string]uint64 `json:"limited,omitzero"`
	// Quarantined are definitions that were quarantined.
	Quarantined uint64 `json:"quarantined"`
}

// Stats returns the figures of the host, for metrics. It is safe for concurrent use.
func (h *Host) Stats() Stats {
	st := Stats{Servers: map[status.State]int{}, ByServer: map[string]ServerStats{},
		Decisions: h.counts.decisions.All(), Approvals: h.counts.approvals.All(),
		RecordsLost: h.observe.Lost.Load(), MaxProcesses: h.callerLimits().Processes}
	st.Processes = h.servers.Processes()
	st.Spilled, st.SpilledBytes = h.result.Kept()
	if waiting, lost, ok := backlog(h.opts.Recorder); ok {
		st.RecordsWaiting, st.RecordsLost = waiting, lost
	}
	for _, u := range h.servers.Current().Servers() {
		s := stats(u)
		st.ByServer[u.Name()] = s
		st.Servers[s.State]++
		st.Instances += s.Instances
		st.Requests += s.Requests
		st.Suspended += s.Suspended
	}
	return st
}

// backlog returns the figures of the first Recorder with a method Backlog.
func backlog(r event.Recorder) (waiting int, lost uint64, ok bool) {
	for r != nil {
		if b, ok := r.(interface {
			Backlog() (waiting int, lost uint64)
		}); ok {
			waiting, lost = b.Backlog()
			return waiting, lost, true
		}
		outer, ok := r.(interface{ Unwrap() event.Recorder })
		if !ok {
			break
		}
		r = outer.Unwrap()
	}
	return 0, 0, false
}

// stats returns the figures of a server.
func stats(u *upstream.Server) ServerStats {
	s := u.Status()
	return ServerStats{State: s.State, Instances: len(s.Instances), Requests: s.Requests, Suspended: s.Suspended,
		Queued: s.Limits.Queued, Held: s.Held, Breaker: s.Limits.Breaker, Restarts: s.Restarts,
		Errors: s.Errors, Limited: s.Limits.Refused, Quarantined: s.Quarantined}
}

// hostCounts contains counts since the host was opened.
type hostCounts struct {
	decisions observe.Counters[DecisionKind]
	approvals observe.Counters[string] // by outcome
}

func (h *Host) countDecision(about policy.ActionKind, d *policy.Decision) {
	effect := d.Do.String()
	if d.Do == policy.OutcomeAllow && len(d.Redact) > 0 {
		effect = "redact"
	}
	h.counts.decisions.Add(DecisionKind{about, effect})
}

// countError counts a request without a valid response of its server, unless its caller cancelled
// it.
func (h *Host) countError(ctx context.Context, err error) {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok || ctx.Err() != nil {
		return
	}
	if u := h.servers.Current().Named(e.Server); u != nil {
		u.CountError(e.Code)
	}
}

// countApproval counts the end of a request that needed an approval.
func (h *Host) countApproval(ctx context.Context, granted bool, err error) {
	outcome := "approved"
	e, _ := errors.AsType[*hosterr.Error](err)
	switch {
	case err == nil && granted:
		outcome = "granted"
	case err == nil:
	case ctx.Err() != nil:
		outcome = "cancelled"
	case e != nil && e.Code == hosterr.CodeDenied:
		outcome = "denied"
	case e != nil && e.Code == hosterr.CodeApprovalExpired:
		outcome = "expired"
	default:
		outcome = "failed"
	}
	h.counts.approvals.Add(outcome)
}
