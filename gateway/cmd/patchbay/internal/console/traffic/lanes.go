package traffic

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/chart"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

const (
	// maxLines limits the lines of standard error in the lanes, the newest lines: more would overlap.
	maxLines = 200
	// rangeFormat is the format of times in a filter, in UTC.
	rangeFormat = "2006-01-02T15:04:05.000Z"
)

// hops are the lanes; the last lane contains lines of standard error.
var hops = []capture.Hop{capture.Downstream, capture.Upstream, capture.HTTP, capture.OAuth, "stderr"}

// rangeTerms are the terms of a filter that select a range of time.
var rangeTerms = regexp.MustCompile(`(^|\s)(from|to):\S+`)

// lanes sets the chart of the exchanges that a page lists, if any, and returns the version of the
// chart. While an exchange is in progress, the version changes every trafficEvery.
func (s screen) lanes(p *trafficPage, query *capture.Query) (version string) {
	hash, now := fnv.New64a(), time.Now()
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
				end = now
			}
			if first.IsZero() || x.Queued.Before(first) {
				first = x.Queued
			}
			if end.After(last) {
				last = end
			}
			fmt.Fprintln(hash, x.ID, x.End, x.Status)
			lanes[i].Spans = append(lanes[i].Spans, chart.Span{From: x.Queued, To: end, Failed: x.IsError(),
				Open: !x.IsOver()})
		}
	}
	from, to := query.Range(time.Time{}, time.Time{})
	oldest := s.ring.Oldest().Truncate(time.Millisecond) // as in a filter
	if first = cmp.Or(from, first); first.Before(oldest) && !from.IsZero() {
		first = oldest
	}
	if last = cmp.Or(to, last); last.After(now) {
		last = now
	}
	if first.IsZero() || last.Before(first) {
		return "none"
	}
	for _, at := range s.ring.Stderr(query, maxLines) {
		if !at.Before(first) && !at.After(last) {
			fmt.Fprintln(hash, at.UnixNano())
			lanes[len(hops)-1].Spans = append(lanes[len(hops)-1].Spans, chart.Span{From: at, To: at})
		}
	}
	p.Whole = rangeTerms.ReplaceAllString(p.Query, "")
	p.Lanes = chart.NewLanes(first, last, lanes, func(from, to time.Time) string {
		to = to.Add(time.Millisecond - 1) // rounded up: the part contains its end
		words := " from:" + from.UTC().Format(rangeFormat) + " to:" + to.UTC().Format(rangeFormat)
		url, _ := page.Link("/traffic", "q", strings.TrimSpace(p.Whole+words)) // a name and a value
		return url
	})
	return fmt.Sprint(hash.Sum64(), first.UnixNano(), last.Truncate(trafficEvery).Unix())
}
