package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Floors of the growth per hour and of its uncertainty. A process with ten goroutines may have one
// more at the end. One object of 16 bytes for every hundred calls would be 1.6 MB in an hour.
const (
	countFloor, countNoise = 1, 10
	heapFloor, heapNoise   = 32 << 10, 1 << 20
)

// maxParked is the number of goroutines that may wait to read one stream: that of package readerpool.
// A server over stdio has one stream.
const maxParked = 16

// judgeFrom is the shortest run whose trends are judged; those of a shorter run are printed.
const judgeFrom = 30 * time.Minute

// observe adds the samples of a quiet point to the series.
func (s *soak) observe(samples map[string]sample) {
	at := time.Since(s.began)
	for name, m := range samples {
		s.series(name+" goroutines", countFloor, countNoise).add(at, s.phase, float64(m.Goroutines-m.Parked))
		if strings.HasPrefix(name, "stdio") && m.Parked > maxParked {
			s.fail("%s: %d goroutines wait to read one stream, want at most %d", name, m.Parked, maxParked)
		}
		s.series(name+" descriptors", countFloor, countNoise).add(at, s.phase, float64(m.Descriptors))
		s.series(name+" live heap", heapFloor, heapNoise).add(at, s.phase, float64(m.Heap))
		s.series(name+" resident (not judged)", 0, 0).add(at, s.phase, float64(m.Resident))
	}
	s.phase++
}

func (s *soak) series(name string, floor, noise float64) *series {
	for _, one := range s.all {
		if one.name == name {
			return one
		}
	}
	one := &series{name: name, floor: floor, noise: noise}
	s.all = append(s.all, one)
	return one
}

// verdict prints the results, and returns an error for everything that has failed, err included.
func (s *soak) verdict(err error) error {
	s.results.write(s.out)
	failed, took := []error{err}, time.Since(s.began)
	fmt.Fprintf(s.out, "%v, in which the processes could not run for %v\n", took, s.stalls.sum())
	for _, one := range s.all {
		t, err := one.fit(took)
		if err == nil {
			fmt.Fprintf(s.out, "%s: mean %.6g, growth per hour %+.4g ± %.2g (%+.2f %% ± %.2f %%)\n", one.name, t.mean,
				t.slope, confidence*t.err, 100*t.slope/t.mean, 100*confidence*t.err/t.mean)
			if one.floor > 0 {
				err = one.judge(t)
			}
		} else {
			err = fmt.Errorf("%s: %w", one.name, err)
		}
		if err != nil && took >= judgeFrom {
			failed = append(failed, err)
		}
	}
	if took < judgeFrom {
		fmt.Fprintf(s.out, "growth is not judged: the run is shorter than %v\n", judgeFrom)
	}
	if n := s.results.calls.Load(); n < s.calls {
		failed = append(failed, fmt.Errorf("%d calls, want %d", n, s.calls))
	}
	if s.failures > 0 {
		failed = append(failed, fmt.Errorf("%d failures", s.failures))
	}
	if err = errors.Join(failed...); err != nil {
		fmt.Fprintln(s.out, "FAIL")
		return err
	}
	fmt.Fprintln(s.out, "PASS")
	return nil
}
