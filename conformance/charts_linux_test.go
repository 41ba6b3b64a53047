package conformance_test

import (
	"fmt"
	"html"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A chart is a panel of the dashboard with the values that Prometheus has for it.
type chart struct {
	title, unit string
	lines       []chartLine
}

type chartLine struct {
	name   string
	points [][2]float64 // Unix times and values
}

// queryRange returns the values of a query since a time, with the legend of the panel.
func (p *prometheus) queryRange(expression, legend string, since time.Time) (lines []chartLine, err error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	err = p.get("/api/v1/query_range", url.Values{"query": {expression}, "step": {"1"},
		"start": {strconv.FormatInt(since.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)}}, &data)
	for _, r := range data.Result {
		line := chartLine{name: legend}
		for label, value := range r.Metric {
			line.name = strings.ReplaceAll(line.name, "{{"+label+"}}", value)
		}
		for _, v := range r.Values {
			moment, _ := v[0].(float64)
			text, _ := v[1].(string)
			if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) {
				line.points = append(line.points, [2]float64{moment, value})
			}
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b chartLine) int { return strings.Compare(a.name, b.name) })
	return lines, err
}

// The measures of charts in pixels.
const (
	chartWidth, chartHeight = 500, 250
	plotLeft, plotTop       = 58, 40
	plotWidth, plotHeight   = 425, 135
)

var lineColors = []string{"#2f80ed", "#c2571a", "#1f9254", "#8e44ad", "#b8860b", "#c0392b", "#16a085", "#7f8c8d",
	"#d63384", "#5b7c0a", "#6f5b3e", "#0aa2c0"}

// drawCharts returns a picture of charts, two beside each other.
func drawCharts(charts []chart, from, to time.Time) string {
	var b strings.Builder
	height := chartHeight * ((len(charts) + 1) / 2)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">
<style>
text { font: 12px ui-sans-serif, system-ui, "DejaVu Sans", Arial, sans-serif; fill: #1f2328 }
.small { font-size: 10px; fill: #59636e } .grid { stroke: #d1d9e0 } .page { fill: #ffffff }
polyline { fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .small { fill: #9198a1 } .grid { stroke: #3d444d } .page { fill: #0d1117 } }
</style>
<rect class="page" width="%[1]d" height="%[2]d"/>
`, 2*chartWidth, height)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", chartWidth*(i%2), chartHeight*(i/2))
		c.draw(&b, from, to)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c chart) draw(b *strings.Builder, from, to time.Time) {
	fmt.Fprintf(b, `<text x="12" y="22" font-weight="bold">%s</text>`+"\n", html.EscapeString(c.title))
	most := 0.0
	for _, line := range c.lines {
		for _, p := range line.points {
			most = max(most, p[1])
		}
	}
	most = niceMaximum(most)
	for i := range 5 {
		y := plotTop + plotHeight*i/4
		fmt.Fprintf(b, `<line class="grid" x1="%d" y1="%d" x2="%d" y2="%[2]d"/>`, plotLeft, y, plotLeft+plotWidth)
		fmt.Fprintf(b, `<text class="small" x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			plotLeft-6, y+4, c.number(most*float64(4-i)/4))
	}
	seconds := to.Sub(from).Seconds()
	for i := range 5 {
		fmt.Fprintf(b, `<text class="small" x="%d" y="%d" text-anchor="middle">%.0f s</text>`,
			plotLeft+plotWidth*i/4, plotTop+plotHeight+15, seconds*float64(i)/4)
	}
	b.WriteByte('\n')
	x, y := plotLeft, plotTop+plotHeight+36
	for i, line := range c.lines {
		color := lineColors[i%len(lineColors)]
		var points strings.Builder
		for _, p := range line.points {
			fmt.Fprintf(&points, "%.0f,%.1f ", plotLeft+plotWidth*(p[0]-float64(from.Unix()))/seconds,
				plotTop+plotHeight*(1-p[1]/most))
		}
		fmt.Fprintf(b, `<polyline stroke="%s" points="%s"/>`+"\n", color, strings.TrimSpace(points.String()))
		width := 24 + 6*len(line.name)
		if x+width > chartWidth {
			x, y = plotLeft, y+16
		}
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="9" height="9" rx="2" fill="%s"/>`, x, y-8, color)
		fmt.Fprintf(b, `<text class="small" x="%d" y="%d">%s</text>`+"\n", x+13, y, html.EscapeString(line.name))
		x += width
	}
}

// niceMaximum returns the least of 1, 2, 4 and 8 times a power of ten that is at least v.
func niceMaximum(v float64) float64 {
	if v == 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 4, 8} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

// number returns a value as Grafana shows it.
func (c chart) number(v float64) string {
	switch {
	case c.unit == "s" && v < 1:
		return fmt.Sprintf("%.3g ms", v*1000)
	case c.unit == "s":
		return fmt.Sprintf("%.3g s", v)
	case c.unit == "reqps":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
