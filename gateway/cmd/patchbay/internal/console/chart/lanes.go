package chart

import (
	"fmt"
	"strings"
	"time"
)

const (
	laneWidth, laneHeight = 1000, 24 // of a lane in the viewBox, which the style sheet stretches
	leastSpan             = 3        // the width of a span without duration
	triangle              = 12       // the width of the triangle at the end of a failed span
	zooms                 = 4        // the parts of the time axis that a person selects with a link
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

// Lanes is a chart of lanes with a common time axis.
type Lanes struct {
	From, To      time.Time
	Lanes         []Lane
	Width, Height int
	Description   string
	Ticks         []Tick
}

// A Tick is a part of the time axis, which the URL selects.
type Tick struct{ From, URL, To string }

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
	step := to.Sub(from) / zooms
	for i := range zooms {
		at := from.Add(step * time.Duration(i))
		l.Ticks = append(l.Ticks, Tick{clock(at), zoom(at, at.Add(step)), clock(at.Add(step))})
	}
	l.Description = fmt.Sprintf("From %s to %s. %s.", clock(from), clock(to), strings.Join(words, "; "))
	return l
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

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
