package traffic

import (
	"regexp"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/chart"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// maxProcesses limits the processes whose standard error the lanes show, and maxLines the
	// newest lines of each process.
	maxProcesses, maxLines = 20, 200
	// rangeFormat is the format of times in a filter, in UTC.
	rangeFormat = "2006-01-02T15:04:05.000Z"
)

// hops are the lanes; the last lane contains lines of standard error.
var hops = []capture.Hop{capture.Downstream, capture.Upstream, capture.HTTP, capture.OAuth, "stderr"}

// rangeTerms are the terms of a filter that select a range of time.
var rangeTerms = regexp.MustCompile(`(^|\s)(from|to):\S+`)

// lanes returns the chart of the exchanges that a page lists, or nil without exchanges.
func (s screen) lanes(p *trafficPage, query *capture.Query) *chart.Lanes {
	lanes := make([]chart.Lane, len(hops))
	var first, last time.Time
	for i, hop := range hops {
		lanes[i].Name = string(hop)
		for j := range p.Rows {
			x := &p.Rows[j]
			if x.Hop != hop {
				continue
			}
			end := x.Queued.Add(x.End)
			if !x.IsOver() {
				end = time.Now()
			}
			if first.IsZero() || x.Queued.Before(first) {
				first = x.Queued
			}
			if end.After(last) {
				last = end
			}
			lanes[i].Spans = append(lanes[i].Spans, chart.Span{From: x.Queued, To: end, Failed: x.IsError(),
				Open: !x.IsOver()})
		}
	}
	if first, last = query.Range(first, last); first.IsZero() || last.Before(first) {
		return nil
	}
	processes, _ := capture.ParseQuery(p.Query + " hop:process") // all processes if the query is invalid
	for _, x := range s.ring.Find(processes, 0, maxProcesses) {
		for _, at := range s.ring.Times(x.ID, capture.Stderr, maxLines) {
			if !at.Before(first) && !at.After(last) {
				lanes[len(hops)-1].Spans = append(lanes[len(hops)-1].Spans, chart.Span{From: at, To: at})
			}
		}
	}
	p.Whole = rangeTerms.ReplaceAllString(p.Query, "")
	return chart.NewLanes(first, last, lanes, func(from, to time.Time) string {
		words := " from:" + from.UTC().Format(rangeFormat) + " to:" + to.UTC().Format(rangeFormat)
		url, _ := page.Link("/traffic", "q", strings.TrimSpace(p.Whole+words)) // a name and a value
		return url
	})
}
