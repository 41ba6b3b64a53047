// Package chart draws time series for the web console. The component [Chart.Figure] shows a chart: its
// geometry is in attributes of SVG elements, its colours are classes, and its labels are text.
package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The viewBox of a chart, which the style sheet stretches to the width of the page.
const (
	width  = 600
	height = 150
	// labels is the number of labels of the time axis.
	labels = 4
)

// Options describes a chart.
type Options struct {
	ID    string // of the element, unique in the page
	Title string // the quantity with its unit: "Calls per second"
	Table string // URL of the same data as a table
	Start time.Time
	Step  time.Duration // between two values
	Lines []Line        // at most 3, which differ by colour and dashes
	// Format returns a value in words, with its unit. Default: the number.
	Format func(v float64) string
}

// A Line is a series of values at Start, Start+Step and so on.
type Line struct {
	Name   string
	Values []float64 // NaN for no value
}

// A Chart is a chart with up to three lines.
type Chart struct {
	ID, Title, Description, Table string
	Width, Height                 int
	Lines                         []DrawnLine
	Levels                        []Level  // grid lines, the highest first
	Times                         []string // labels of the time axis, the oldest first
	From, To                      time.Time
}

// A DrawnLine is a line of a chart.
type DrawnLine struct {
	Name  string
	Class string
	Last  string   // the last value in words; "–" if there is none
	Paths []string // the attribute d of each part without a gap
}

// A Level is a grid line.
type Level struct {
	Y     string // the attribute y1 and y2
	Label string
}

// New returns a chart.
func New(o *Options) *Chart {
	format := o.Format
	if format == nil {
		format = Number
	}
	n, top := 0, 0.0
	for _, l := range o.Lines {
		n = max(n, len(l.Values))
		for _, v := range l.Values {
			if !math.IsNaN(v) {
				top = max(top, v)
			}
		}
	}
	c := &Chart{ID: o.ID, Title: o.Title, Table: o.Table, Width: width, Height: height, From: o.Start,
		To: o.Start.Add(time.Duration(max(n-1, 0)) * o.Step)}
	scale := nice(top)
	for _, part := range []float64{1, .5, 0} {
		c.Levels = append(c.Levels, Level{attribute(height * (1 - part)), format(scale * part)})
	}
	for i := range labels {
		at := c.From.Add(c.To.Sub(c.From) * time.Duration(i) / (labels - 1))
		c.Times = append(c.Times, at.Local().Format(timeFormat(o.Step)))
	}
	words := []string{}
	for i, l := range o.Lines {
		d, highest := draw(l.Values, n, scale, i, format)
		d.Name = l.Name
		c.Lines = append(c.Lines, d)
		words = append(words, fmt.Sprintf("%s: at most %s, last %s", l.Name, highest, d.Last))
	}
	c.Description = fmt.Sprintf("From %s to %s. %s.", c.Times[0], c.Times[labels-1], strings.Join(words, "; "))
	return c
}

// timeFormat returns the format of the labels of the time axis.
func timeFormat(step time.Duration) string {
	if step < time.Minute {
		return "15:04:05"
	}
	return "15:04"
}

// draw returns a line of a chart of n values, and its highest value in words.
func draw(
	values []float64, n int, scale float64, index int, format func(float64) string,
) (d DrawnLine, highest string) {
	d.Class = "line-" + strconv.Itoa(index+1)
	d.Last, highest = "–", "–"
	top := math.Inf(-1)
	var path strings.Builder
	end := func() {
		if path.Len() > 0 {
			d.Paths = append(d.Paths, path.String())
			path.Reset()
		}
	}
	for i, v := range values {
		if math.IsNaN(v) {
			end()
			continue
		}
		x := width * float64(i) / float64(max(n-1, 1))
		y := height * (1 - v/scale)
		command := "L"
		if path.Len() == 0 {
			command = "M"
			if i+1 == len(values) || math.IsNaN(values[i+1]) { // a single value is a short line
				command = "M" + attribute(max(x-2, 0)) + " " + attribute(y) + "L"
			}
		}
		path.WriteString(command + attribute(x) + " " + attribute(y))
		if v > top {
			top, highest = v, format(v)
		}
		if i == n-1 {
			d.Last = format(v)
		}
	}
	end()
	return d, highest
}

// attribute returns a coordinate.
func attribute(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// nice returns the smallest of the numbers 1, 2, 5, 10, 20 and so on that is not below v, or 0.1
// and so on for a smaller v. It is 1 for 0.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if v <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// Number returns a number with up to three digits after the point, fewer for larger numbers.
func Number(v float64) string {
	digits := 0
	switch {
	case v == 0:
	case v < 1:
		digits = 3
	case v < 100:
		digits = 1
	}
	scale := math.Pow(10, float64(digits))
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}
