package chart_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/chart"
)

func TestChartDrawsPartsWithoutGaps(t *testing.T) {
	none := math.NaN()
	c := chart.New(&chart.Options{ID: "rate", Title: "Calls per second", Table: "/metrics?view=table",
		Start: time.Date(2026, 11, 29, 10, 0, 0, 0, time.Local), Step: time.Second,
		Lines: []chart.Line{{Name: "calls", Values: []float64{none, 0, 4, none, 2}},
			{Name: "none", Values: []float64{none}}}})
	want := []string{"M150 150L300 30", "M598 90L600 90"}
	if got := c.Lines[0].Paths; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.Lines[0].Last != "2" || c.Lines[1].Last != "–" || c.Lines[1].Paths != nil || c.Levels[0].Label != "5" ||
		c.Times[0] != "10:00:00" || c.Times[3] != "10:00:04" {
		t.Errorf("got %+v", c)
	}
	if !strings.Contains(c.Description, "calls: at most 4, last 2") {
		t.Errorf("description %q", c.Description)
	}
}

func TestChartOfNothing(t *testing.T) {
	c := chart.New(&chart.Options{ID: "x", Title: "X", Step: time.Minute, Lines: []chart.Line{{Name: "x"}}})
	if c.Levels[0].Label != "1" || c.Lines[0].Paths != nil || len(c.Times) != 4 {
		t.Errorf("got %+v", c)
	}
}

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0421: "0.042", 1.26: "1.3", 42: "42", 1234.5: "1235"} {
		if got := chart.Number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

// The longest range that a time.Duration holds has ordered parts.
func TestLanesOfALongRange(t *testing.T) {
	from := time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC)
	var last time.Time
	chart.NewLanes(from, from.AddDate(3000, 0, 0), nil, func(from, to time.Time) string {
		if !from.Before(to) || from.Before(last) {
			t.Errorf("got a part from %v to %v after %v", from, to, last)
		}
		last = to
		return "/"
	})
}
