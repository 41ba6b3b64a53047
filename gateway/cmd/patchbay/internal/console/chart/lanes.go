package chart

import (
	"fmt"
	"strings"
	"time"
)

const (
	// laneWidth and laneHeight are the size of a lane in the viewBox, which the style sheet stretches.
	laneWidth, laneHeight = 1000, 24
	// leastSpan is the width of a span without duration.
	leastSpan = 3
	// triangle is the width of the triangle at the end of a failed span.
	triangle = 12
	// zooms is the number of parts of the time axis that a person selects with a link.
	zooms = 4
)

// A Lane contains spans of time in a row of a [Lanes].
type Lane struct {
	Name, Y string // Y is the attribute y1 and y2 of its base line
	Spans   []Span
}

// A Span is a period, which ends with a triangle if it failed.
type Span struct {
	From, To time.Time
	Failed   bool
	Open     bool   // in progress at To
	Path     string // the attribute d, set by [NewLanes]
}

// Lanes is a chart of lanes with a common time axis: the data of the template part/lanes.
type Lanes struct {
	From, To      time.Time
	Lanes         []Lane
	Width, Height int
	Description   string
	Ticks         []Tick
}

// A Tick is a time of the axis. URL leads to the part that begins there and is empty for the last tick.
type Tick struct{ Time, URL, Until string }

// NewLanes returns a chart of the lanes from a time to another. zoom returns the URL of the chart of a part.
func NewLanes(from, to time.Time, lanes []Lane, zoom func(from, to time.Time) string) *Lanes {
	to = from.Add(max(to.Sub(from), time.Millisecond))
	l := &Lanes{From: from, To: to, Lanes: lanes, Width: laneWidth, Height: laneHeight * len(lanes)}
	words := make([]string, 0, len(lanes))
	for i := range lanes {
		failed, base := 0, laneHeight*float64(i+1)-4
		lanes[i].Y = attribute(base)
		for j := range lanes[i].Spans {
			if s := &lanes[i].Spans[j]; s.draw(l, base) {
				failed++
			}
		}
		words = append(words, fmt.Sprintf("%s: %d, %d failed", lanes[i].Name, len(lanes[i].Spans), failed))
	}
	at := func(i int) time.Time { return from.Add(to.Sub(from) * time.Duration(i) / zooms) }
	for i := range zooms + 1 {
		t := Tick{Time: l.clock(at(i))}
		if i < zooms {
			t.URL, t.Until = zoom(at(i), at(i+1)), l.clock(at(i+1))
		}
		l.Ticks = append(l.Ticks, t)
	}
	l.Description = fmt.Sprintf("From %s to %s. %s.", l.clock(from), l.clock(to), strings.Join(words, "; "))
	return l
}

// clock returns a time of the axis, with milliseconds on a short axis.
func (l *Lanes) clock(t time.Time) string {
	if l.To.Sub(l.From) < zooms*time.Second {
		return t.Local().Format("15:04:05.000")
	}
	return t.Local().Format("15:04:05")
}

// draw sets the path of a span above a base line, and reports whether the span failed.
func (s *Span) draw(l *Lanes, base float64) (failed bool) {
	x := func(t time.Time) float64 {
		return min(max(laneWidth*float64(t.Sub(l.From))/float64(l.To.Sub(l.From)), 0), laneWidth-leastSpan)
	}
	begin, top := attribute(x(s.From)), attribute(base-8)
	end := max(x(s.To), x(s.From)+leastSpan)
	s.Path = fmt.Sprintf("M%s %sV%sH%sV%sZ", begin, attribute(base), top, attribute(end), attribute(base))
	if s.Failed {
		s.Path += fmt.Sprintf("M%s %sL%s %sL%s %sZ", attribute(end-triangle/2), top, attribute(end), attribute(base-18),
			attribute(end+triangle/2), top)
	}
	return s.Failed
}
