package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
)

const (
	// maxExchanges limits the exchanges of a page: a person filters rather than reads more.
	maxExchanges = 200
	// trafficEvery is how often the durations of exchanges in progress are rendered.
	trafficEvery = 2 * time.Second
)

// traffic contains the functions of the screen.
type traffic struct{ *Console }

// trafficRoutes are the routes of the traffic, unless nothing records it.
func (c *Console) trafficRoutes() []*route {
	if c.opts.Capture == nil {
		return nil
	}
	return []*route{
		{Path: "/traffic", Role: RoleViewer, Title: "Traffic", Key: "t", Order: 30, View: traffic{c}.view},
		{Path: "/traffic/export", Role: RoleViewer, serve: traffic{c}.export},
	}
}

// follow tells the streams about new and changed exchanges.
func (c traffic) follow() {
	if c.opts.Capture == nil {
		return
	}
	w := c.opts.Capture.Watch()
	defer w.Close()
	for {
		if _, _, err := w.Next(c.ctx); err != nil {
			return
		}
		c.Changed()
	}
}

// A trafficPage is the data of templates/traffic.html.
type trafficPage struct {
	Query, Problem string
	Rows           []exchangeRow // the newest first
	More           string        // the URL of older exchanges, or ""
	Selected       *exchangePage // nil if none is
	Missing        string        // the ID of an exchange that is no longer held
	JSON, HAR      string        // URLs of exports
}

// An exchangeRow is the data of templates/part/exchange.html.
type exchangeRow struct {
	capture.Exchange
	Element  string // its id
	Link     string
	Selected bool
	Compare  string // the URL of a comparison with the selected exchange, or ""
}

// Kind returns the class of the status, which selects its colour and symbol.
func (x *exchangeRow) Kind() string {
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
func (x *exchangeRow) Words() string {
	switch {
	case x.Status != "":
		return x.Status
	case x.Hop == capture.Process:
		return "running"
	}
	return "in progress"
}

// Took returns the duration of an exchange that ended.
func (x *exchangeRow) Took() string {
	if !x.IsOver() {
		return ""
	}
	return shortDuration(x.End)
}

// Size returns the bytes of all frames in words.
func (x *exchangeRow) Size() string { return fmt.Sprintf("%d B", x.Bytes) }

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

// An exchangePage is the selected exchange: the data of templates/part/frames.html.
type exchangePage struct {
	exchangeRow
	Cause  string // the URL of the exchange that caused it, or ""
	Frames []frameRow
	Other  uint64 // the exchange that it is compared with, or 0
	Diff   []diffLine
	Same   bool   // the messages do not differ
	Tool   string // the URL of the tool in Explore, or ""
}

// A frameRow is a frame.
type frameRow struct {
	capture.Frame
	Arrow  string
	After  string // the time since the exchange began
	Pretty string // the text with indentation, if it is JSON; numbers and strings keep their source text
}

func (c traffic) view(r *request) (*View, error) {
	q := r.URL.Query()
	p := &trafficPage{Query: q.Get("q")}
	var err error
	if p.JSON, err = link("/traffic/export", "q", p.Query, "format", "recording"); err != nil {
		return nil, err
	}
	if p.HAR, err = link("/traffic/export", "q", p.Query, "format", "har"); err != nil {
		return nil, err
	}
	query, err := capture.ParseQuery(p.Query)
	if err != nil {
		p.Problem = err.Error()
	}
	before, _ := strconv.ParseUint(q.Get("before"), 10, 64) // another value shows the newest
	selected, _ := strconv.ParseUint(q.Get("id"), 10, 64)
	for _, x := range c.opts.Capture.Find(query, before, maxExchanges) {
		p.Rows = append(p.Rows, c.exchangeRow(x, p.Query, q.Get("before"), selected))
	}
	if len(p.Rows) == maxExchanges {
		p.More, _ = link("/traffic", "q", p.Query, "before", strconv.FormatUint(p.Rows[maxExchanges-1].ID, 10))
	}
	var fragments []Fragment
	for i := range slices.Backward(p.Rows) {
		x := &p.Rows[i]
		fragments = append(fragments, Fragment{ID: x.Element, Part: "exchange", Data: x, In: "exchanges",
			Place: PlacePrepend, Version: fmt.Sprint(x.Status, x.Frames, x.End, x.Rounds, x.Method, x.Selected)})
	}
	if selected != 0 {
		other, _ := strconv.ParseUint(q.Get("with"), 10, 64)
		p.Selected = c.exchangePage(selected, other, p.Query, q.Get("before"))
		if p.Selected == nil {
			p.Missing = q.Get("id")
		} else {
			fragments = append(fragments, Fragment{ID: "frames", Part: "frames", Data: p.Selected})
		}
	}
	return &View{Template: "traffic", Data: p, Fragments: fragments, Every: trafficEvery}, nil
}

func (c traffic) exchangeRow(x capture.Exchange, query, before string, selected uint64) exchangeRow {
	id := strconv.FormatUint(x.ID, 10)
	row := exchangeRow{Exchange: x, Element: "x" + id, Selected: x.ID == selected}
	words := []string{"q", query, "id", id}
	if before != "" {
		words = append(words, "before", before)
	}
	row.Link, _ = link("/traffic", words...) // pairs
	if selected != 0 && !row.Selected {
		row.Compare, _ = link("/traffic", "q", query, "id", strconv.FormatUint(selected, 10), "with", id)
	}
	return row
}

// exchangePage returns an exchange with its frames, or nil if it is no longer held.
func (c traffic) exchangePage(id, other uint64, query, before string) *exchangePage {
	x, frames, ok := c.opts.Capture.Get(id)
	if !ok {
		return nil
	}
	p := &exchangePage{exchangeRow: c.exchangeRow(x, query, before, id)}
	if x.Cause != 0 {
		p.Cause, _ = link("/traffic", "q", query, "id", strconv.FormatUint(x.Cause, 10))
	}
	if x.Method == "tools/call" && x.Hop == capture.Upstream {
		p.Tool, _ = link("/explore", "server", x.Server, "tool", x.Target)
	}
	for _, f := range frames {
		row := frameRow{Frame: f, Arrow: "←", After: shortDuration(f.Time.Sub(x.Queued))}
		if f.Sent {
			row.Arrow = "→"
		}
		if pretty := jsontext.Value(f.Text); pretty.Indent() == nil {
			row.Pretty = string(pretty)
		}
		p.Frames = append(p.Frames, row)
	}
	if _, with, ok := c.opts.Capture.Get(other); ok {
		p.Other = other
		p.Diff = diffLines(messageLines(frames), messageLines(with))
		p.Same = !slices.ContainsFunc(p.Diff, func(l diffLine) bool { return l.Kind != diffSame })
	}
	return p
}

// export writes the exchanges that match the query of the URL to a file: all, or the exchange "id".
func (c traffic) export(w http.ResponseWriter, r *request) {
	q := r.URL.Query()
	ids, err := c.exported(q.Get("q"), q.Get("id"))
	write, name := c.opts.Capture.WriteRecording, "traffic.jsonl"
	if q.Get("format") == "har" {
		write, name = c.opts.Capture.WriteHAR, "traffic.har"
	}
	var text strings.Builder
	if err == nil {
		err = write(&text, ids)
	}
	if err != nil {
		c.showError(w, r, http.StatusBadRequest, "", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = w.Write([]byte(text.String())) // an error means that the browser left
}

// exported returns the exchanges to export, the oldest first.
func (c traffic) exported(query, id string) (ids []uint64, err error) {
	if id != "" {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return nil, &gateway.Problem{Status: http.StatusBadRequest, Detail: "invalid id: must be a number"}
		}
		return []uint64{n}, nil
	}
	q, err := capture.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	for _, x := range c.opts.Capture.Find(q, 0, capture.MaxExported) {
		ids = append(ids, x.ID)
	}
	if len(ids) == 0 {
		return nil, errors.New("no exchange matches the filter")
	}
	slices.Reverse(ids)
	return ids, nil
}
