package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// A window is a span of time that the page shows.
type window struct {
	name  string // in the URL
	title string
	step  time.Duration
	steps int
}

// windows are the spans for which series are held: a series has 438 points of about 140 bytes.
var windows = []window{
	{"1m", "1 minute", time.Second, 60},
	{"15m", "15 minutes", 10 * time.Second, 90},
	{"24h", "24 hours", 5 * time.Minute, 288},
}

// maxNames limits the servers, and the methods, with a series of their own: 64 KiB each. The calls
// of all others are a series together, named other.
const (
	maxNames = 60
	other    = "other"
)

// knownMethods are the methods with a series of their own. Callers may send any other text.
var knownMethods = []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "tasks/get",
	"tasks/result", "tasks/update", "tasks/cancel", "tasks/list"}

// bounds are the upper ends of the ranges in which durations are counted. A duration above the last
// bound is counted in a range of its own.
var bounds = [...]time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond,
	7 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond,
	50 * time.Millisecond, 70 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond,
	200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond, time.Second,
	1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute}

// counts are the calls of a span of time.
type counts struct {
	Calls, Failed, Refused uint32
	took                   [len(bounds) + 1]uint32 // calls by range of their duration, without the refused calls
}

// add counts a call.
func (c *counts) add(e *page.Event) {
	c.Calls++
	switch e.Outcome {
	case "refused":
		c.Refused++
		return
	case "error":
		c.Failed++
	}
	took := time.Duration(e.Millis * float64(time.Millisecond))
	at, _ := slices.BinarySearch(bounds[:], took)
	c.took[at]++
}

// merge adds other counts.
func (c *counts) merge(o *counts) {
	c.Calls += o.Calls
	c.Failed += o.Failed
	c.Refused += o.Refused
	for i, n := range o.took {
		c.took[i] += n
	}
}

// percentile returns a bound that the share p of the calls did not exceed, and ok if there were
// calls. For the last range it is the last bound.
func (c *counts) percentile(p float64) (d time.Duration, ok bool) {
	var all uint32
	for _, n := range c.took {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	rest := max(1, uint32(p*float64(all)+.999))
	for i, n := range c.took {
		if rest <= n {
			return bounds[min(i, len(bounds)-1)], true
		}
		rest -= n
	}
	return bounds[len(bounds)-1], true
}

// A point is a span of a series: the n-th since 1970.
type point struct {
	n int64
	counts
}

// A series contains the points of each window, in rings.
type series [][]point

func newSeries() series {
	s := make(series, len(windows))
	for i, w := range windows {
		s[i] = make([]point, w.steps)
	}
	return s
}

func (s series) add(e *page.Event, now time.Time) {
	for i, w := range windows {
		n := now.UnixNano() / int64(w.step)
		p := &s[i][n%int64(w.steps)]
		if p.n != n {
			*p = point{n: n}
		}
		p.add(e)
	}
}

// A subject identifies the calls that a series counts. The zero subject selects all calls.
type subject struct{ Kind, Name string }

// String returns the text of a subject in the URL, such as server:fs.
func (s subject) String() string {
	if s.Kind == "" {
		return ""
	}
	return s.Kind + ":" + s.Name
}

func parseSubject(text string) subject {
	kind, name, _ := strings.Cut(text, ":")
	return subject{kind, name}
}

// A store holds the series of a console since its start. It is safe for concurrent use.
type store struct {
	began time.Time

	mu    sync.Mutex // guards the fields below
	calls uint64
	all   map[subject]series
}

func newStore(now time.Time) *store {
	return &store{began: now, all: map[subject]series{{}: newSeries()}}
}

// add counts a call.
func (s *store) add(e *page.Event, now time.Time) {
	method := e.Method
	if !slices.Contains(knownMethods, method) {
		method = other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.all[subject{}].add(e, now)
	s.of("server", cmp.Or(e.Server, other)).add(e, now)
	s.of("method", method).add(e, now)
}

// of returns the series of a subject. The caller must hold the lock.
func (s *store) of(kind, name string) series {
	k := subject{kind, name}
	if s.all[k] == nil {
		n := 0
		for known := range s.all {
			if known.Kind == kind {
				n++
			}
		}
		if n >= maxNames {
			k.Name = other
		}
		if s.all[k] == nil {
			s.all[k] = newSeries()
		}
	}
	return s.all[k]
}

// hasCalls reports whether there was a call.
func (s *store) hasCalls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls > 0
}

// subjects returns the subjects with a series, without all calls, sorted.
func (s *store) subjects() []subject {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []subject
	for k := range s.all {
		if k.Kind != "" {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b subject) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// A sample is the counts of a step of a window.
type sample struct {
	Start time.Time
	Span  time.Duration // the part of the step in which the console ran; 0 before its start
	counts
}

// perSecond returns the rate of a number of calls of the sample.
func (s *sample) perSecond(n uint32) float64 { return float64(n) / s.Span.Seconds() }

// read returns the complete steps of a window before now, the oldest first, and ok if the subject
// has a series. Until a step is complete, the step in progress is the last sample.
func (s *store) read(of subject, w int, now time.Time) (all []sample, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	points := s.all[of]
	if points == nil {
		return nil, false
	}
	step, steps := windows[w].step, int64(windows[w].steps)
	last := now.UnixNano() / int64(step)       // not complete
	for n := last - steps + 1; n < last; n++ { // the ring has no room for one more
		start := time.Unix(0, n*int64(step))
		one := sample{Start: start, Span: min(step, max(0, start.Add(step).Sub(s.began)))}
		if p := &points[w][n%steps]; p.n == n {
			one.counts = p.counts
		}
		all = append(all, one)
	}
	if end := &all[len(all)-1]; end.Span == 0 {
		start := time.Unix(0, last*int64(step))
		one := sample{Start: start, Span: now.Sub(s.began)}
		if p := &points[w][last%steps]; p.n == last {
			one.counts = p.counts
		}
		all = append(all[1:], one)
	}
	return all, true
}
