package bench

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// maxFirstFailures ends a measurement that has no successful call.
const maxFirstFailures = 100

// A Plan limits the calls of a measurement.
type Plan struct {
	Workers  int           // calls at the same time
	Count    int           // calls; 0 for no limit but Duration
	Duration time.Duration // 0 for no limit but Count
	WarmUp   time.Duration // of calls that do not count, before the others
	Rate     float64       // calls that start per second; 0 for no limit
}

// String returns the number of calls in words.
func (b *Plan) String() string {
	var limits []string
	if b.Count > 0 {
		limits = append(limits, term.Counted(b.Count, "call"))
	}
	if b.Duration > 0 {
		limits = append(limits, fmt.Sprintf("for %v", b.Duration))
	}
	text := strings.Join(limits, ", or ")
	if b.WarmUp > 0 {
		text += fmt.Sprintf(" after %v of warm-up", b.WarmUp)
	}
	return fmt.Sprintf("%s, %d at a time", text, b.Workers)
}

// run makes the calls, first the warm-up. It ends early, with the measurement so far, when ctx is
// done. Calls that ctx interrupts do not count.
func (b *Plan) run(ctx context.Context, call func(ctx context.Context, worker int) error) *measurement {
	if b.WarmUp > 0 {
		warm := *b
		warm.Count, warm.Duration = 0, b.WarmUp
		warm.phase(ctx, call)
	}
	return b.phase(ctx, call)
}

// phase makes calls with all workers until the count or the duration is reached, whichever is first.
func (b *Plan) phase(ctx context.Context, call func(ctx context.Context, worker int) error) *measurement {
	m := &measurement{began: time.Now(), failures: map[string]*failureCount{}}
	var workers sync.WaitGroup
	for worker := range b.Workers {
		workers.Go(func() {
			for {
				start, ok := m.next(ctx, b)
				if !ok {
					return
				}
				err := call(ctx, worker)
				if ctx.Err() != nil {
					return
				}
				m.add(time.Since(start), err)
			}
		})
	}
	workers.Wait()
	m.took = time.Since(m.began)
	return m
}

// A measurement contains the durations and failures of calls.
type measurement struct {
	began time.Time
	took  time.Duration // of all calls together

	mu       sync.Mutex // guards the fields below
	started  int
	failed   int
	latency  histogram // of successful calls
	failures map[string]*failureCount
}

// A failureCount counts the failures of a kind.
type failureCount struct {
	Count int    `json:"count"`
	First string `json:"first"` // message of the first failure
}

// next waits until the next call is due and returns when that is: with a rate, the latency of a call
// includes the time that it had to wait for a worker. It reports false if there is no next call.
func (m *measurement) next(ctx context.Context, b *Plan) (start time.Time, ok bool) {
	m.mu.Lock()
	n := m.started
	m.started++
	stop := m.latency.count == 0 && m.failed >= maxFirstFailures
	m.mu.Unlock()
	start = time.Now()
	if b.Rate > 0 {
		start = m.began.Add(time.Duration(float64(n) / b.Rate * float64(time.Second)))
	}
	if stop || b.Count > 0 && n >= b.Count || b.Duration > 0 && start.Sub(m.began) >= b.Duration {
		return start, false
	}
	if wait := time.Until(start); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return start, ctx.Err() == nil
}

func (m *measurement) add(took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.latency.add(took)
		return
	}
	m.failed++
	code := exit.Code(context.Background(), err)
	kind := exit.Kinds[code]
	if m.failures[kind] == nil {
		const maxMessage = 200 // characters
		m.failures[kind] = &failureCount{First: term.Shorten(term.CleanLine(exit.Text(code, err)), maxMessage)}
	}
	m.failures[kind].Count++
}

// histogramBits is the precision of a histogram: values above 2^histogramBits nanoseconds are
// rounded to that many bits, so by less than 0.8%.
const histogramBits = 7

// A histogram counts durations in buckets whose width grows with the value. Its size does not depend
// on the number of values.
type histogram struct {
	count    int
	sum      float64 // nanoseconds
	min, max time.Duration
	buckets  [(64 - histogramBits) << histogramBits]int
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	if h.count == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.count++
	h.sum += float64(d)
	h.buckets[bucketOf(uint64(d))]++
}

// bucketOf returns the bucket of a value: the exponent above the precision, and the first bits.
func bucketOf(v uint64) int {
	exponent := max(bits.Len64(v)-histogramBits-1, 0)
	return exponent<<histogramBits + int(v>>exponent)
}

// quantile returns the value that a share of all values does not exceed, such as 0.99.
func (h *histogram) quantile(share float64) time.Duration {
	wanted := int(math.Ceil(share * float64(h.count)))
	seen := 0
	for i, n := range h.buckets {
		if seen += n; seen >= wanted && n > 0 {
			return max(min(bucketEnd(i), h.max), h.min)
		}
	}
	return h.max
}

// bucketEnd returns the largest value of a bucket.
func bucketEnd(i int) time.Duration {
	exponent := max(i>>histogramBits-1, 0)
	return time.Duration(uint64(i-exponent<<histogramBits+1)<<exponent - 1)
}

func (h *histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.count))
}
