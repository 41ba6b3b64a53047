package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

func auditRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/audit", "Last records of the audit log", (*adminRequest).audit)}
}

// An auditQuery selects records.
type auditQuery struct {
	Since  string `json:"since,omitzero" jsonschema:"records from this time on,format=date-time"`
	Until  string `json:"until,omitzero" jsonschema:"records before this time,format=date-time"`
	Server string `json:"server,omitzero"`
	Event  string `json:"event,omitzero" jsonschema:"such as end or refused"`
	Caller string `json:"caller,omitzero"`
	Target string `json:"target,omitzero" jsonschema:"name or URI that the server or the caller uses"`
	Limit  int    `json:"limit,omitzero" jsonschema:"only the last records,minimum=1,maximum=1000"`
}

// An auditPage is one page of audit records.
type auditPage struct {
	Records []json.RawMessage `json:"records" jsonschema:"lines of the log, the oldest first"`
	Matched int               `json:"matched" jsonschema:"number of records that match; the response has the last ones"`
	Invalid int               `json:"invalid" jsonschema:"number of lines that are not records"`
}

func (r *adminRequest) audit(q *auditQuery) (*auditPage, error) {
	if r.admin.opts.AuditDir == "" {
		return nil, problemf(http.StatusNotFound, "no_audit_log",
			`missing audit log: the member patchbay of the configuration must have "audit": {}`)
	}
	var from, to time.Time
	for _, t := range []struct {
		text string
		to   *time.Time
	}{{q.Since, &from}, {q.Until, &to}} {
		var err error
		if t.text == "" {
			continue
		}
		if *t.to, err = time.Parse(time.RFC3339Nano, t.text); err != nil {
			return nil, invalidParameter("invalid time %.100q: must be as in RFC 3339",
				t.text)
		}
	}
	limit := limitOr(q.Limit)
	res := &auditPage{Records: []json.RawMessage{}}
	for e, err := range audit.Read(r.admin.opts.AuditDir) {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		if err != nil {
			res.Invalid++
			continue
		}
		if !q.matches(e, from, to) {
			continue
		}
		res.Matched++
		if res.Records = append(res.Records, e.Raw); len(res.Records) >= 2*limit {
			res.Records = append(res.Records[:0], res.Records[len(res.Records)-limit:]...)
		}
	}
	res.Records = res.Records[max(0, len(res.Records)-limit):]
	return res, nil
}

func (q *auditQuery) matches(e *audit.Entry, from, to time.Time) bool {
	is := func(want string, got ...string) bool { return want == "" || slices.Contains(got, want) }
	return !e.Time.Before(from) && (to.IsZero() || e.Time.Before(to)) && is(q.Server, e.Server) &&
		is(q.Event, e.Event) && is(q.Caller, e.Caller) && is(q.Target, e.Target, e.Public)
}
