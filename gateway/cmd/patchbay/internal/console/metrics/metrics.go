// Package metrics is the screen of the web console with the rate, the failures and the duration of
// calls since the console started.
package metrics

import (
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/chart"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// A screen shows the series of a store.
type screen struct{ store *store }

// New returns the screen. Its series begin now, and contain the calls of the events that it hears.
func New() *page.Screen {
	s := &screen{newStore(time.Now())}
	return &page.Screen{Heard: s.heard, Routes: []*page.Route{
		{Path: "/metrics", Role: page.RoleViewer, Title: "Metrics", Key: "m", Order: 80, View: s.view},
	}}
}

func (s *screen) heard(e page.Event) {
	if e.Type == "call" {
		s.store.add(&e, time.Now())
	}
}

// A metricsPage is the data of metricsBody.
type metricsPage struct {
	Began     time.Time
	Windows   []choice
	Subjects  []choice
	Window    string // of the URL
	Of        string // of the URL
	AsTable   bool
	TableLink string
	ChartLink string
	Figures   figures
}

// A choice is a link, or an option of a form.
type choice struct {
	Value, Text, Link string
	Current           bool
}

// figures are the live part of the page.
type figures struct {
	Empty    bool // no call since the start
	Began    time.Time
	Now      totals
	InFlight int
	Queued   int
	Charts   []*chart.Chart
	Rows     []row // the newest first
}

// totals are the figures of the last minute in words.
type totals struct{ Rate, Errors, Refused, P95 string }

// A row is a step of the window in words.
type row struct {
	Start                                       time.Time
	Calls, Rate, Failed, Refused, P50, P95, P99 string
}

// The response of GET /servers, as far as it is shown.
type serverList struct {
	Servers []struct {
		Name     string `json:"name"`
		Requests int    `json:"requests"`
		Limits   struct {
			Queued int `json:"queued"`
		} `json:"limits"`
	} `json:"servers"`
}

func (s *screen) view(r *page.Request) (*page.View, error) {
	q := r.URL.Query()
	w, of := 1, parseSubject(q.Get("of"))
	for i, known := range windows {
		if known.name == q.Get("window") {
			w = i
		}
	}
	now := time.Now()
	samples, ok := s.store.read(of, w, now)
	if !ok {
		return nil, page.Problem(http.StatusNotFound, "no_series", "no call of %s since the console started", of)
	}
	p := &metricsPage{Began: s.store.began, Window: windows[w].name, Of: of.String(), AsTable: q.Get("view") == "table"}
	p.links(s.store.subjects())
	var list serverList
	if err := r.Get("/servers", &list); err != nil {
		return nil, err
	}
	f := &p.Figures
	f.Began = s.store.began
	for _, one := range list.Servers {
		if of.Kind != "server" || of.Name == one.Name {
			f.InFlight += one.Requests
			f.Queued += one.Limits.Queued
		}
	}
	f.Empty = !s.store.hasCalls()
	minute, _ := s.store.read(of, 0, now)
	f.Now = newTotals(minute)
	switch {
	case f.Empty:
	case p.AsTable:
		f.Rows = rows(samples)
	default:
		f.Charts = charts(samples, windows[w].step, p.TableLink)
	}
	every := min(windows[w].step, 5*time.Second)
	return &page.View{Body: metricsBody(p), Every: every,
		Fragments: []page.Fragment{{ID: "figures", Body: figuresPart(f)}}}, nil
}

// links sets the links to the other states of the page.
func (p *metricsPage) links(subjects []subject) {
	link := func(window, of string, table bool) string {
		q := url.Values{"window": {window}}
		if of != "" {
			q.Set("of", of)
		}
		if table {
			q.Set("view", "table")
		}
		return "/metrics?" + q.Encode()
	}
	for _, w := range windows {
		p.Windows = append(p.Windows, choice{w.name, w.title, link(w.name, p.Of, p.AsTable), w.name == p.Window})
	}
	p.Subjects = []choice{{Text: "All calls", Current: p.Of == ""}}
	for _, of := range subjects {
		p.Subjects = append(p.Subjects, choice{Value: of.String(), Text: of.Kind + " " + of.Name,
			Current: of.String() == p.Of})
	}
	p.TableLink, p.ChartLink = link(p.Window, p.Of, true), link(p.Window, p.Of, false)
}

// newTotals returns the figures of samples together.
func newTotals(all []sample) totals {
	var sum sample
	for i := range all {
		sum.Span += all[i].Span
		sum.merge(&all[i].counts)
	}
	t := totals{Rate: "–", Errors: "–", Refused: "–", P95: "–"}
	if sum.Span > 0 {
		t.Rate = chart.Number(sum.perSecond(sum.Calls))
	}
	if sum.Calls > 0 {
		const percent = 100
		t.Errors = chart.Number(percent*float64(sum.Failed)/float64(sum.Calls)) + " %"
		t.Refused = chart.Number(percent*float64(sum.Refused)/float64(sum.Calls)) + " %"
	}
	if p95, ok := sum.percentile(.95); ok {
		t.P95 = "≤ " + p95.String()
	}
	return t
}

// percentiles are the shares of the calls whose longest duration is shown.
var percentiles = []struct {
	name string
	p    float64
}{{"p50", .5}, {"p95", .95}, {"p99", .99}}

// charts returns the charts of samples.
func charts(all []sample, step time.Duration, table string) []*chart.Chart {
	values := func(value func(s *sample) float64) []float64 {
		v := make([]float64, len(all))
		for i := range all {
			if v[i] = math.NaN(); all[i].Span > 0 {
				v[i] = value(&all[i])
			}
		}
		return v
	}
	perSecond := func(count func(s *sample) uint32) []float64 {
		return values(func(s *sample) float64 { return s.perSecond(count(s)) })
	}
	start := all[0].Start
	rate := &chart.Options{ID: "chart-calls", Title: "Calls per second", Table: table, Start: start, Step: step,
		Lines: []chart.Line{{Name: "calls", Values: perSecond(func(s *sample) uint32 { return s.Calls })}}}
	failed := &chart.Options{ID: "chart-failed", Title: "Failed and refused calls per second", Table: table,
		Start: start, Step: step, Lines: []chart.Line{
			{Name: "failed", Values: perSecond(func(s *sample) uint32 { return s.Failed })},
			{Name: "refused", Values: perSecond(func(s *sample) uint32 { return s.Refused })}}}
	took := &chart.Options{ID: "chart-took", Title: "Duration of calls", Table: table, Start: start, Step: step,
		Format: func(ms float64) string { return time.Duration(ms * float64(time.Millisecond)).String() }}
	for _, share := range percentiles {
		took.Lines = append(took.Lines, chart.Line{Name: share.name, Values: values(func(s *sample) float64 {
			if d, ok := s.percentile(share.p); ok {
				return float64(d) / float64(time.Millisecond)
			}
			return math.NaN()
		})})
	}
	return []*chart.Chart{chart.New(rate), chart.New(failed), chart.New(took)}
}

// rows returns the samples in words, the newest first.
func rows(all []sample) (list []row) {
	for i := len(all) - 1; i >= 0; i-- {
		s := &all[i]
		if s.Span == 0 {
			break
		}
		one := row{Start: s.Start, Calls: chart.Number(float64(s.Calls)), Rate: chart.Number(s.perSecond(s.Calls)),
			Failed: chart.Number(float64(s.Failed)), Refused: chart.Number(float64(s.Refused))}
		for i, to := range []*string{&one.P50, &one.P95, &one.P99} {
			*to = "–"
			if d, ok := s.percentile(percentiles[i].p); ok {
				*to = "≤ " + d.String()
			}
		}
		list = append(list, one)
	}
	return list
}
