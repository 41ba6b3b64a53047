package root

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
)

// A spanNode is a span within the tree of its trace.
type spanNode struct {
	*otlptest.Span
	depth int
}

func (n spanNode) service() string { return n.Resource["service.name"] }

func (n spanNode) kind() string { return strings.TrimPrefix(n.Kind.String(), "SPAN_KIND_") }

// traceTree returns the spans of a trace, each parent before its children, which are in the order of
// their starts. lost are those whose parent is not in the trace.
func traceTree(all []*otlptest.Span, trace []byte) (tree []spanNode, lost []*otlptest.Span) {
	ids, children := map[string]bool{}, map[string][]*otlptest.Span{}
	for _, s := range all {
		if bytes.Equal(s.TraceId, trace) {
			ids[string(s.SpanId)] = true
			children[string(s.ParentSpanId)] = append(children[string(s.ParentSpanId)], s)
		}
	}
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		slices.SortFunc(children[parent], func(a, b *otlptest.Span) int {
			return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano)
		})
		for _, s := range children[parent] {
			tree = append(tree, spanNode{s, depth})
			add(string(s.SpanId), depth+1)
		}
	}
	add("", 0)
	for parent, those := range children {
		if parent != "" && !ids[parent] {
			lost = append(lost, those...)
		}
	}
	return tree, lost
}

// outline returns a tree as text, a line for each span, without times and ids.
func outline(tree []spanNode) string {
	var b strings.Builder
	for _, n := range tree {
		line := fmt.Sprintf("%-40s %-8s %s", strings.Repeat("  ", n.depth)+n.Name, n.kind(), n.service())
		if network := n.Attribute("network.transport"); network != "" {
			line += " " + network
		}
		if n.Attribute("patchbay.input_required") != "" {
			line += " input_required"
		}
		if failure := n.Attribute("error.type"); failure != "" {
			line += " " + failure
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// The measures of a waterfall in pixels.
const (
	waterfallWidth = 1000
	nameWidth      = 400
	rowHeight      = 26
	headHeight     = 58
)

// serviceColors are the colors of the services of a waterfall, in the order of their first spans. They
// have enough contrast on white and on black.
var serviceColors = []string{"#2f80ed", "#c2571a", "#1f9254", "#8e44ad"}

// drawWaterfall returns a picture of a trace: a row for each span, whose bar shows when it ran.
func drawWaterfall(title string, tree []spanNode) string {
	first, last := tree[0].StartTimeUnixNano, tree[0].EndTimeUnixNano
	var services []string
	for _, n := range tree {
		first, last = min(first, n.StartTimeUnixNano), max(last, n.EndTimeUnixNano)
		if !slices.Contains(services, n.service()) {
			services = append(services, n.service())
		}
	}
	scale := float64(waterfallWidth-nameWidth-90) / float64(last-first)
	var b strings.Builder
	height := headHeight + rowHeight*len(tree) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328 }
.time { font-size: 11px; fill: #59636e } .grid { stroke: #d1d9e0 } .page { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .time { fill: #9198a1 } .grid { stroke: #3d444d } .page { fill: #0d1117 } }
</style>
<rect class="page" width="%[1]d" height="%[2]d"/>
<text x="12" y="22" font-weight="bold">%[3]s</text>
`, waterfallWidth, height, html.EscapeString(title))
	x := nameWidth
	for i, service := range services {
		fmt.Fprintf(&b, `<rect x="%d" y="12" width="11" height="11" rx="2" fill="%s"/><text x="%d" y="22">%s</text>`+"\n",
			x, serviceColors[i%len(serviceColors)], x+16, html.EscapeString(service))
		x += 44 + 8*len(service)
	}
	for i := range 5 {
		moment := (last - first) * uint64(i) / 4
		x := nameWidth + scale*float64(moment)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, x, headHeight-6, x, height-8)
		fmt.Fprintf(&b, `<text class="time" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, headHeight-12, spanTime(moment))
	}
	for i, n := range tree {
		y := headHeight + rowHeight*i
		color := serviceColors[slices.Index(services, n.service())%len(serviceColors)]
		left := nameWidth + scale*float64(n.StartTimeUnixNano-first)
		width := max(2, scale*float64(n.EndTimeUnixNano-n.StartTimeUnixNano))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, 12+16*n.depth, y+17, html.EscapeString(n.Name))
		fmt.Fprintf(&b, `<text class="time" x="%d" y="%d" text-anchor="end">%s</text>`,
			nameWidth-12, y+17, strings.ToLower(n.kind()))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="14" rx="2" fill="%s"/>`, left, y+6, width, color)
		took := spanTime(n.EndTimeUnixNano - n.StartTimeUnixNano)
		if n.Attribute("patchbay.input_required") != "" {
			took += ", asks"
		}
		fmt.Fprintf(&b, `<text class="time" x="%.1f" y="%d">%s</text>`+"\n", left+width+5, y+17, took)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// rowsOf returns the texts of a picture without its times.
func rowsOf(picture string) string {
	texts := strings.Join(pictureText.FindAllString(picture, -1), "\n")
	return pictureTime.ReplaceAllString(texts, "")
}

var (
	pictureText = regexp.MustCompile(`>[^<\n]+</text>`)
	pictureTime = regexp.MustCompile(`[0-9.]+ (ms|µs)`)
)

// spanTime returns a time with at most three digits.
func spanTime(nanoseconds uint64) string {
	switch us := float64(nanoseconds) / 1e3; {
	case us < 1e3:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e4:
		return fmt.Sprintf("%.1f ms", us/1e3)
	default:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
}
