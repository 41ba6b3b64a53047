package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBenchPlan(t *testing.T) {
	ten := func(ctx context.Context, _ int) error { time.Sleep(10 * time.Millisecond); return nil }
	for name, test := range map[string]struct {
		plan      Plan
		calls     int // in all
		measured  int
		took, p50 time.Duration
	}{
		"duration":    {Plan{Workers: 1, Duration: time.Second}, 100, 100, time.Second, 10 * time.Millisecond},
		"concurrency": {Plan{Workers: 4, Duration: time.Second}, 400, 400, time.Second, 10 * time.Millisecond},
		"count": {Plan{Workers: 4, Count: 10, Duration: time.Second}, 10, 10, 30 * time.Millisecond,
			10 * time.Millisecond},
		"warm-up": {Plan{Workers: 2, Count: 10, WarmUp: time.Second}, 210, 10, 50 * time.Millisecond,
			10 * time.Millisecond},
		"count first": {Plan{Workers: 1, Count: 5, Duration: time.Second},
			5, 5, 50 * time.Millisecond, 10 * time.Millisecond},
		"time first": {Plan{Workers: 1, Count: 500, Duration: time.Second},
			100, 100, time.Second, 10 * time.Millisecond},
		"only count": {Plan{Workers: 1, Count: 2000},
			2000, 2000, 20 * time.Second, 10 * time.Millisecond},
		"rate": {Plan{Workers: 4, Duration: time.Second, Rate: 50},
			50, 50, 990 * time.Millisecond, 10 * time.Millisecond},
		// One worker makes 100 calls per second, so that the wait for it rises to half of the time.
		"rate too high": {Plan{Workers: 1, Count: 100, Rate: 200}, 100, 100, time.Second, 255 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				m := test.plan.run(t.Context(), func(ctx context.Context, worker int) error {
					calls.Add(1)
					return ten(ctx, worker)
				})
				p50 := m.latency.quantile(0.5)
				if int(calls.Load()) != test.calls || m.latency.count != test.measured || m.took != test.took ||
					p50 < test.p50 || p50 > test.p50*101/100 {
					t.Errorf("%d calls, %d measured in %v, p50 %v, want %d, %d in %v, %v", calls.Load(),
						m.latency.count, m.took, p50, test.calls, test.measured, test.took, test.p50)
				}
			})
		})
	}
}

func TestBenchEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		plan := Plan{Workers: 2, Duration: time.Hour}
		m := plan.run(ctx, func(ctx context.Context, worker int) error {
			select {
			case <-time.After(400 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if m.latency.count != 14 || len(m.failures) != 0 || m.took != 3*time.Second {
			t.Errorf("after an interrupt: %d calls, %v in %v, want 14, no failures, 3s", m.latency.count, m.failures,
				m.took)
		}
		plan = Plan{Workers: 1, Duration: time.Hour}
		m = plan.run(t.Context(), func(context.Context, int) error { return errors.New("refused") })
		if m.failed != maxFirstFailures || m.failures["failure"].Count != maxFirstFailures ||
			m.failures["failure"].First != "refused" {
			t.Errorf("without a successful call: %d failures, %v, want %d", m.failed, m.failures, maxFirstFailures)
		}
	})
}

func TestHistogramQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		exact, got := all[int(share*10_000)-1], h.quantile(share)
		if got < exact || float64(got) > 1.008*float64(exact) {
			t.Errorf("quantile %v: %v, want %v", share, got, exact)
		}
	}
	if h.min != all[0] || h.max != all[len(all)-1] || h.quantile(1) != h.max {
		t.Errorf("min %v, max %v, want %v, %v", h.min, h.max, all[0], all[len(all)-1])
	}
	for _, v := range []uint64{0, 1, 127, 128, 255, 256, 257, 1 << 40, 1<<63 - 1} {
		i := bucketOf(v)
		if end := uint64(bucketEnd(i)); end < v || i > 0 && uint64(bucketEnd(i-1)) >= v {
			t.Errorf("bucket %d of %d ends at %d", i, v, end)
		}
	}
	if new(histogram).quantile(0.5) != 0 {
		t.Error("an empty histogram has a quantile")
	}
}
