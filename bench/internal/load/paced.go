package load

import (
	"slices"
	"sync"
	"time"
)

// RunAt makes calls at a fixed rate for d, whatever the responses take, and
// returns the latency of each, sorted. The connections take turns. A call that
// must wait for its connection counts from the time at which it was due, so that
// a slow server is not measured less often. The wake-up of a timer of the load
// does not count.
func (h *HTTP) RunAt(rate int, d time.Duration) ([]time.Duration, error) {
	every := time.Second * time.Duration(len(h.callers)) / time.Duration(rate)
	latencies := make([][]time.Duration, len(h.callers))
	errs := make([]error, len(h.callers))
	var all sync.WaitGroup
	begin := time.Now()
	for i, c := range h.callers {
		if err := c.conn.SetDeadline(begin.Add(d + grace)); err != nil {
			return nil, err
		}
		all.Go(func() {
			first := begin.Add(every * time.Duration(i) / time.Duration(len(h.callers)))
			latencies[i], errs[i] = c.paced(first, every, begin.Add(d))
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	joined := slices.Concat(latencies...)
	slices.Sort(joined)
	return joined, nil
}

func (c *caller) paced(due time.Time, every time.Duration, end time.Time) (all []time.Duration, err error) {
	for ; due.Before(end); due = due.Add(every) {
		begin := due
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			begin = time.Now()
		}
		if err := c.once(); err != nil {
			return nil, err
		}
		all = append(all, time.Since(begin))
	}
	return all, nil
}
