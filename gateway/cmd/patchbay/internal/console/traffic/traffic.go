// Package traffic is the screen of the web console with the recorded requests and their frames.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/chart"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

const (
	// maxExchanges limits the exchanges of a page: a person filters rather than reads more.
	maxExchanges = 200
	// trafficEvery is how often the durations of exchanges in progress are rendered.
	trafficEvery = 2 * time.Second
)

// screen contains the functions of the screen.
type screen struct {
	site *page.Site
	ring *capture.Ring
}

// New returns the screen for the exchanges of a ring.
func New(site *page.Site, ring *capture.Ring) *page.Screen {
	s := screen{site, ring}
	// The messages of all callers, and filters that find their texts, are more than the key of a
	// viewer grants.
	return &page.Screen{Follow: s.follow, Routes: []*page.Route{
		{Path: "/traffic", Role: page.RoleOperator, Title: "Traffic", Key: "t", Order: 30, View: s.view},
		{Path: "/traffic/export", Role: page.RoleOperator, Serve: s.export},
	}}
}

// follow tells the streams about new and changed exchanges.
func (s screen) follow(ctx context.Context) {
	w := s.ring.Watch()
	defer w.Close()
	for {
		if _, _, err := w.Next(ctx); err != nil {
			return
		}
		s.site.Changed()
	}
}

// A trafficPage is the data of the page.
type trafficPage struct {
	Query, Problem string
	Rows           []Row         // the newest first
	More           string        // the URL of older exchanges, or ""
	Selected       *exchangePage // nil if none is
	Missing        string        // the ID of an exchange that is no longer held
	JSON, HAR      string        // URLs of exports
	Lanes          *chart.Lanes  // nil without exchanges
	Whole          string        // the query without a range of time
}

// A Row is an exchange in a list.
type Row struct {
	capture.Exchange
	Element  string // its id
	Link     string
	Selected bool
	Compare  string // the URL of a comparison with the selected exchange, or ""
}

// Name returns the method and the target of the request.
func (x *Row) Name() string { return strings.TrimSpace(x.Method + " " + x.Target) }

// Kind returns the class of the status, which selects its colour and symbol.
func (x *Row) Kind() string {
	switch {
	case x.IsError():
		return "bad"
	case x.Status == capture.StatusQuestion:
		return "warn"
	case !x.IsOver() && x.Hop != capture.Process:
		return "busy"
	case x.Status == capture.StatusOK:
		return "ok"
	}
	return "idle"
}

// Words returns the status in words.
func (x *Row) Words() string {
	switch {
	case x.Status != "":
		return x.Status
	case x.Hop == capture.Process:
		return "running"
	}
	return "in progress"
}

// Took returns the duration of an exchange that ended.
func (x *Row) Took() string {
	if !x.IsOver() {
		return ""
	}
	return shortDuration(x.End)
}

// Size returns the bytes of all frames in words.
func (x *Row) Size() string { return fmt.Sprintf("%d B", x.Bytes) }

// shortDuration returns a duration with three digits or fewer.
func shortDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond / 10).String()
	}
	return d.Round(time.Second / 10).String()
}

// An exchangePage is the selected exchange.
type exchangePage struct {
	Row
	Cause  string // the URL of the exchange that caused it, or ""
	Frames []frameRow
	Other  uint64 // the exchange that it is compared with, or 0
	Diff   []diff.Line
	Same   bool   // the messages do not differ
	Exact  bool   // also compare ids and times
	Switch string // the URL of the same page with Exact inverted
	Tool   string // the URL of the tool in Explore, or ""
	Again  bool   // the request can be sent again
}

// A frameRow is a frame.
type frameRow struct {
	capture.Frame
	Arrow  string
	After  string // the time since the exchange began
	Pretty string // the text with indentation, if it is JSON; numbers and strings keep their source text
}

// queryOf parses the query of a person, which selects only exchanges that the person may read, also after an error.
func queryOf(r *page.Request, text string) (*capture.Query, error) {
	q, err := capture.ParseQuery(text)
	if err != nil {
		q = &capture.Query{}
	}
	opened := servers.Opened(r)
	q.Only(func(x *capture.Exchange) bool { return opened(x.Server) })
	return q, err
}

// get returns an exchange that a person may read. Views must call get in place of the ring.
func (s screen) get(r *page.Request, id uint64) (x capture.Exchange, frames []capture.Frame, ok bool) {
	x, frames, ok = s.ring.Get(id)
	if ok && !servers.Opened(r)(x.Server) {
		return capture.Exchange{}, nil, false
	}
	return x, frames, ok
}

func (s screen) view(r *page.Request) (*page.View, error) {
	q := r.URL.Query()
	p := &trafficPage{Query: q.Get("q")}
	if trace := q.Get("trace"); trace != "" {
		p.Query = "trace:" + trace
	}
	var err error
	if p.JSON, err = page.Link("/traffic/export", "q", p.Query, "format", "recording"); err != nil {
		return nil, err
	}
	if p.HAR, err = page.Link("/traffic/export", "q", p.Query, "format", "har"); err != nil {
		return nil, err
	}
	query, err := queryOf(r, p.Query)
	if err != nil {
		p.Problem = err.Error()
	}
	before, _ := strconv.ParseUint(q.Get("before"), 10, 64) // another value shows the newest
	selected, _ := strconv.ParseUint(q.Get("id"), 10, 64)
	found := s.ring.Find(query, before, maxExchanges)
	if q.Get("trace") != "" && selected == 0 && len(found) > 0 {
		selected = found[0].ID
	}
	for _, x := range found {
		p.Rows = append(p.Rows, s.exchangeRow(x, p.Query, q.Get("before"), selected))
	}
	if len(p.Rows) == maxExchanges {
		p.More, _ = page.Link("/traffic", "q", p.Query, "before", strconv.FormatUint(p.Rows[maxExchanges-1].ID, 10))
	}
	var fragments []page.Fragment
	for i := range slices.Backward(p.Rows) {
		x := &p.Rows[i]
		fragments = append(fragments, page.Fragment{ID: x.Element, Body: x.row(), In: "exchanges",
			Place: page.Prepend, Version: fmt.Sprint(x.Status, x.Frames, x.End, x.Rounds, x.Method, x.Selected)})
	}
	fragments = append(fragments, page.Fragment{ID: "lanes", Body: lanesPart(p), Version: s.lanes(p, query)})
	if selected != 0 {
		p.Selected = s.exchangePage(r, selected, q)
		if p.Selected == nil {
			p.Missing = q.Get("id")
		} else {
			fragments = append(fragments, page.Fragment{ID: "frames", Body: p.Selected.framesPart()})
		}
	}
	return &page.View{Body: body(p), Fragments: fragments, Every: trafficEvery}, nil
}

func (s screen) exchangeRow(x capture.Exchange, query, before string, selected uint64) Row {
	id := strconv.FormatUint(x.ID, 10)
	row := Row{Exchange: x, Element: "x" + id, Selected: x.ID == selected}
	words := []string{"q", query, "id", id}
	if before != "" {
		words = append(words, "before", before)
	}
	row.Link, _ = page.Link("/traffic", words...) // pairs
	if selected != 0 && !row.Selected {
		row.Compare, _ = page.Link("/traffic", "q", query, "id", strconv.FormatUint(selected, 10), "with", id)
	}
	return row
}

// exchangePage returns an exchange with its frames, or nil if it is no longer held.
func (s screen) exchangePage(r *page.Request, id uint64, q url.Values) *exchangePage {
	x, frames, ok := s.get(r, id)
	if !ok {
		return nil
	}
	query := q.Get("q")
	p := &exchangePage{Row: s.exchangeRow(x, query, q.Get("before"), id), Exact: q.Get("exact") != ""}
	_, err := s.ring.Request(id)
	p.Again = err == nil
	if x.Cause != 0 {
		p.Cause, _ = page.Link("/traffic", "q", query, "id", strconv.FormatUint(x.Cause, 10))
	}
	if x.Method == "tools/call" && x.Hop == capture.Upstream {
		p.Tool, _ = page.Link("/explore", "server", x.Server, "tool", x.Target)
	}
	p.Frames = framesOf(&x, frames)
	other, _ := strconv.ParseUint(q.Get("with"), 10, 64)
	if _, with, ok := s.get(r, other); ok {
		p.Other = other
		words := []string{"q", query, "id", strconv.FormatUint(id, 10), "with", strconv.FormatUint(other, 10)}
		if !p.Exact {
			words = append(words, "exact", "yes")
		}
		p.Switch, _ = page.Link("/traffic", words...) // pairs
		p.Diff = diff.Lines(p.messageLines(frames), p.messageLines(with))
		if slices.ContainsFunc(slices.Concat(frames, with), isCutMessage) {
			p.Diff = append(p.Diff, diff.CutLine("a message is recorded incompletely: its end is not compared"))
		}
		p.Same = diff.IsEqual(p.Diff)
	}
	return p
}

// export writes the exchanges that match the query of the URL to a file: all, or the exchange "id".
func (s screen) export(w http.ResponseWriter, r *page.Request) error {
	q := r.URL.Query()
	ids, err := s.exported(r, q.Get("q"), q.Get("id"))
	write, name := s.ring.WriteRecording, "traffic.jsonl"
	if q.Get("format") == "har" {
		write, name = s.ring.WriteHAR, "traffic.har"
	}
	var text strings.Builder
	if err == nil {
		err = write(&text, ids)
	}
	if err != nil {
		return page.Problem(http.StatusBadRequest, "", "%s", page.ErrorText(err))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = w.Write([]byte(text.String())) // an error means that the browser left
	return nil
}

// exported returns the exchanges to export, the oldest first.
func (s screen) exported(r *page.Request, query, id string) (ids []uint64, err error) {
	if id != "" {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return nil, page.Problem(http.StatusBadRequest, "", "invalid id: must be a number")
		}
		if _, _, ok := s.get(r, n); !ok {
			return nil, fmt.Errorf("exchange %d is not recorded any more", n)
		}
		return []uint64{n}, nil
	}
	q, err := queryOf(r, query)
	if err != nil {
		return nil, err
	}
	for _, x := range s.ring.Find(q, 0, capture.MaxExported) {
		ids = append(ids, x.ID)
	}
	if len(ids) == 0 {
		return nil, errors.New("no exchange matches the filter")
	}
	slices.Reverse(ids)
	return ids, nil
}

func isCutMessage(f capture.Frame) bool { return f.Kind == capture.Message && f.IsCut() }

// messageLines returns the first lines of the messages of an exchange, indented. Unless the
// comparison is exact, they contain no ids and times, which differ between all exchanges.
func (p *exchangePage) messageLines(frames []capture.Frame) (lines []string) {
	for i := range frames {
		f := &frames[i]
		if f.Kind != capture.Message {
			continue
		}
		text := jsontext.Value(f.Text)
		if !p.Exact && text.IsValid() {
			text = check.Steady(text)
		}
		_ = text.Indent() // a message that is cut stays on one line
		for line := range strings.Lines(string(text)) {
			if len(lines) <= diff.MaxLines {
				lines = append(lines, strings.TrimRight(line, "\n"))
			}
		}
	}
	return lines
}
