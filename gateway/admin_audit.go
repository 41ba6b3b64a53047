package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func auditRoutes() []*adminRoute {
	return []*adminRoute{getRoute("/audit", "Last records of the audit log", (*adminRequest).audit), chainRoute()}
}

// An auditQuery selects records.
type auditQuery struct {
	Since  string `json:"since,omitzero" jsonschema:"records from this time on,format=date-time"`
	Until  string `json:"until,omitzero" jsonschema:"records before this time,format=date-time"`
	Server string `json:"server,omitzero" jsonschema:"* stands for any text, here and in caller and target"`
	Event  string `json:"event,omitzero" jsonschema:"such as end or refused"`
	Caller string `json:"caller,omitzero" jsonschema:"subject, or subject and issuer"`
	Target string `json:"target,omitzero" jsonschema:"name or URI that the server or the caller uses"`
	ID     string `json:"id,omitzero" jsonschema:"of a call, whose records are returned"`
	Skip   int    `json:"skip,omitzero" jsonschema:"leave out as many of the last records,minimum=0,maximum=10000"`
	Limit  int    `json:"limit,omitzero" jsonschema:"only the last records,minimum=1,maximum=1000"`
}

// An auditPage is one page of audit records.
type auditPage struct {
	Records []json.RawMessage `json:"records" jsonschema:"lines of the log, the oldest first"`
	Matched int               `json:"matched" jsonschema:"number of records that match; the response has the last ones"`
	Invalid int               `json:"invalid" jsonschema:"number of lines that are not records"`
}

func noAuditLog() error {
	return problemf(http.StatusNotFound, "no_audit_log",
		`missing audit log: the member patchbay of the configuration must have "audit": {}`)
}

func (r *adminRequest) audit(q *auditQuery) (*auditPage, error) {
	if r.admin.opts.AuditDir == "" {
		return nil, noAuditLog()
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
	most := limit + q.Skip
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
		if res.Records = append(res.Records, e.Raw); len(res.Records) >= 2*most {
			res.Records = append(res.Records[:0], res.Records[len(res.Records)-most:]...)
		}
	}
	res.Records = res.Records[:max(0, len(res.Records)-q.Skip)]
	res.Records = res.Records[max(0, len(res.Records)-limit):]
	return res, nil
}

// matches reports whether a record is wanted. Records that the log writes about itself match only a
// query for their event.
func (q *auditQuery) matches(e *audit.Entry, from, to time.Time) bool {
	switch e.Event {
	case "segment", "open", "close", "checkpoint":
		if q.Event != e.Event {
			return false
		}
	}
	like := func(pattern string, got ...string) bool {
		return pattern == "" || slices.ContainsFunc(got, func(text string) bool {
			return text != "" && config.Match([]string{pattern}, text)
		})
	}
	subject, _, _ := strings.Cut(e.Caller, " ")
	return !e.Time.Before(from) && (to.IsZero() || e.Time.Before(to)) && (q.Event == "" || q.Event == e.Event) &&
		(q.ID == "" || q.ID == e.ID) && like(q.Server, e.Server) && like(q.Caller, e.Caller, subject) &&
		like(q.Target, e.Target, e.Public)
}
