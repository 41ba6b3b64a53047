// Package audit is the screen of the web console with the records of the audit log.
package audit

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// maxRows limits the records of a page.
	maxRows = 500
	// maxOfCall limits the records of a call, which has a record for each round.
	maxOfCall = 100
)

// New returns the screen.
func New(site *page.Site) *page.Screen {
	s := &screen{chain: chain{site: site}}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/audit", Role: page.RoleViewer, AnyServer: true, Title: "Audit", Key: "a", Order: 48, View: s.view}}}
}

// A screen contains the last check of the log.
type screen struct{ chain chain }

// URL returns the URL of the page with the filter.
func (f filter) URL() string { return f.link() }

// events are the events of a record that a person can select.
var events = []string{"end", "refused", "intent", "question", "answer", "login", "drift", "config", "admin", "dropped",
	"torn", "retention", "open", "close", "segment", "checkpoint"}

// A filter selects records. It is the query of the page.
type filter struct {
	Event, Caller, Server, Tool, Since, Until string

	skip int
}

func filterOf(q url.Values) filter {
	f := filter{Event: q.Get("event"), Caller: q.Get("caller"), Server: q.Get("server"), Tool: q.Get("tool"),
		Since: q.Get("since"), Until: q.Get("until")}
	f.skip, _ = strconv.Atoi(q.Get("skip")) // another value skips nothing
	return f
}

// link returns the URL of the page with a filter and other parameters.
func (f *filter) link(words ...string) string {
	q := url.Values{}
	for _, p := range [][2]string{{"event", f.Event}, {"caller", f.Caller}, {"server", f.Server}, {"tool", f.Tool},
		{"since", f.Since}, {"until", f.Until}} {
		if p[1] != "" {
			q.Set(p[0], p[1])
		}
	}
	if f.skip > 0 {
		q.Set("skip", strconv.Itoa(f.skip))
	}
	for pair := range slices.Chunk(words, 2) {
		q.Set(pair[0], pair[1])
	}
	if len(q) == 0 {
		return "/audit"
	}
	return "/audit?" + q.Encode()
}

// An auditPage is the data of auditBody.
type auditPage struct {
	Filter  filter
	Problem string // of the filter
	Off     bool   // the gateway keeps no log
	Events  []string
	Rows    []row // the newest first
	Matched int
	Invalid int    // lines of the log that are no records
	Older   string // the URL of older records, or ""
	Newest  string // the URL of the newest records
	Call    string // the call whose records are shown, or ""
	Records []record
	Details bool         // the person may read arguments, error messages and whole records
	Chain   *chainStatus // nil if the gateway does not check it
}

// problem returns the error of a record as the person may read it.
func (p *auditPage) problem(r *record) string {
	switch e := r.Error; {
	case p.Details && e.Code != "":
		return e.Code + ": " + e.Message
	case p.Details:
		return e.Message
	default:
		return cmp.Or(e.Code, "failed")
	}
}

// A row is a record in the list.
type row struct {
	audit.Entry
	Link     string // of the records of its call, or ""
	Selected bool
}

// A record is a record of the selected call.
type record struct {
	row
	Arguments string // their shape, hash, redacted or full form, in words
	Shape     json.RawMessage
}

// When returns the time of a record for people.
func (r *row) When() string { return r.Time.Local().Format("2006-01-02 15:04:05.000") }

// What returns the target of a record, or the action of an operator.
func (r *row) What() string {
	var detail struct{ Action, Request string }
	if r.Event == "admin" {
		_ = json.Unmarshal(r.Detail, &detail) // another detail contains neither
	}
	return cmp.Or(r.Public, r.Target, detail.Request, detail.Action)
}

// Kind returns the class of the outcome, which selects its colour and symbol.
func (r *row) Kind() string {
	switch {
	case r.Event == "refused" || r.Outcome == "refused":
		return "warn"
	case r.Error != nil || r.Outcome == "error" || r.Outcome == "failed" || r.Event == "dropped" || r.Event == "torn":
		return "bad"
	case r.Outcome == "ok":
		return "ok"
	}
	return "idle"
}

// Words returns the outcome in words.
func (r *row) Words() string {
	switch {
	case r.Error != nil && r.Error.Code != "":
		return r.Event + ": " + r.Error.Code
	case r.Outcome != "" && r.Outcome != r.Event:
		return r.Event + ": " + r.Outcome
	}
	return r.Event
}

func (s *screen) view(r *page.Request) (*page.View, error) {
	q := r.URL.Query()
	p := &auditPage{Filter: filterOf(q), Events: events, Call: q.Get("id"),
		Details: r.Role.Grants(page.RoleOperator)}
	p.Newest = (&filter{Event: p.Filter.Event, Caller: p.Filter.Caller, Server: p.Filter.Server, Tool: p.Filter.Tool,
		Since: p.Filter.Since}).link()
	if err := read(r, p); err != nil {
		return nil, err
	}
	if p.Off {
		return &page.View{Body: auditBody(p)}, nil
	}
	if p.Call != "" {
		if err := readCall(r, p); err != nil {
			return nil, err
		}
	}
	p.Chain = s.chain.get(r)
	v := &page.View{Body: auditBody(p)}
	if p.Chain != nil {
		v.Fragments = []page.Fragment{{ID: "chain", Body: chainPart(p.Chain)}}
	}
	return v, nil
}

// A list is a response of GET /audit.
type list struct {
	Records []json.RawMessage `json:"records"`
	Matched int               `json:"matched"`
	Invalid int               `json:"invalid"`
}

// read reads the records that match the filter.
func read(r *page.Request, p *auditPage) error {
	q := url.Values{"limit": {strconv.Itoa(maxRows)}}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	f := &p.Filter
	set("event", f.Event)
	set("caller", f.Caller)
	set("server", f.Server)
	set("target", f.Tool)
	for _, t := range []struct{ name, text string }{{"since", f.Since}, {"until", f.Until}} {
		at, err := parseTime(t.text, time.Now())
		if err != nil {
			p.Problem = err.Error()
		} else if !at.IsZero() {
			set(t.name, at.Format(time.RFC3339Nano))
		}
	}
	if f.skip > 0 {
		set("skip", strconv.Itoa(f.skip))
	}
	var l list
	err := r.Get("/audit?"+q.Encode(), &l)
	var problem *gateway.Problem
	if errors.As(err, &problem) && problem.Code == "no_audit_log" {
		p.Off = true
		return nil
	}
	if err != nil {
		return err
	}
	p.Matched, p.Invalid = l.Matched, l.Invalid
	for _, raw := range slices.Backward(l.Records) {
		if e, ok := parse(raw); ok {
			p.Rows = append(p.Rows, row{Entry: e})
		}
	}
	for i := range p.Rows {
		if x := &p.Rows[i]; x.ID != "" {
			x.Link, x.Selected = f.link("id", x.ID)+"#call", x.ID == p.Call
		}
	}
	p.older(l.Matched)
	return nil
}

// older sets the URL of the page with older records: records before the oldest record, and records
// of the same time that are not shown yet.
func (p *auditPage) older(matched int) {
	f := p.Filter
	if len(p.Rows) == 0 || matched <= len(p.Rows)+f.skip {
		return
	}
	last := p.Rows[len(p.Rows)-1].Time
	next := last.Add(time.Nanosecond).UTC().Format(time.RFC3339Nano)
	skip := 0
	for _, x := range slices.Backward(p.Rows) {
		if !x.Time.Equal(last) {
			break
		}
		skip++
	}
	if skip == len(p.Rows) && next == f.Until {
		skip += f.skip
	}
	f.Until, f.skip = next, skip
	p.Older = f.link()
}

// parse returns the record of a line.
func parse(raw json.RawMessage) (e audit.Entry, ok bool) {
	err := json.Unmarshal(raw, &e)
	e.Raw = raw
	return e, err == nil
}

// readCall reads the records of the selected call.
func readCall(r *page.Request, p *auditPage) error {
	var l list
	if err := r.Get("/audit?"+url.Values{"id": {p.Call}, "limit": {strconv.Itoa(maxOfCall)}}.Encode(), &l); err != nil {
		return err
	}
	for _, raw := range l.Records {
		e, ok := parse(raw)
		if !ok {
			continue
		}
		x := record{row: row{Entry: e}}
		if a := e.Arguments; a != nil {
			switch {
			case a.Full != nil:
				x.Arguments, x.Shape = "arguments", a.Full
			case a.Redacted != nil:
				x.Arguments, x.Shape = "arguments without secrets and long texts", a.Redacted
			case a.Shape != nil:
				x.Arguments, x.Shape = "shape of the arguments", a.Shape
			case a.Hash != "":
				x.Arguments = "keyed hash of the arguments: " + a.Hash
			}
		}
		p.Records = append(p.Records, x)
	}
	if len(p.Records) == 0 {
		return page.Problem(http.StatusNotFound, "unknown_call",
			"the audit log has no record of the call %q: it may have been removed because of its age", p.Call)
	}
	return nil
}
