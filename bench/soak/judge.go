package main

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A series is one figure of one process at the quiet points: the moments at which all clients pause
// and garbage has been collected, so that only what is kept is measured.
type series struct {
	name  string
	floor float64 // the growth per hour that is never a leak, in units of the figure
	noise float64 // the uncertainty of the growth per hour that is always accepted
	at    []time.Duration
	phase []int // quiet points since the last restart of the servers
	value []float64
}

func (s *series) add(at time.Duration, phase int, value float64) {
	s.at, s.phase, s.value = append(s.at, at), append(s.phase, phase), append(s.value, value)
}

const (
	// maxDrift is the largest growth per hour, as a share of the mean.
	maxDrift = 0.01
	// maxNoise is the largest uncertainty of the growth, as a share of the mean: beyond it, a leak
	// could not be seen.
	maxNoise = 0.10
	// confidence is the number of standard errors by which a growth must exceed its limit. With
	// about twenty figures, chance alone exceeds three of them in one run of thirty.
	confidence = 3
	// minPoints is the number of points that a line needs.
	minPoints = 12
)

var errTooFew = errors.New("too few points to judge")

// A trend is the line through a series.
type trend struct {
	mean, slope, err float64 // slope and its standard error per hour
}

// fit puts a least-squares line through the last three quarters of a series. Every restart empties
// the stores of a server, which then fill again for minutes. So the points are compared only with
// points of the same phase: both time and value are taken relative to the mean of their phase, which
// is the same as fitting one line with an offset for each phase.
func (s *series) fit(end time.Duration) (trend, error) {
	type sums struct{ n, at, value float64 }
	phases := map[int]*sums{}
	var all sums
	for i, at := range s.at {
		if at < end/4 {
			continue
		}
		p := phases[s.phase[i]]
		if p == nil {
			p = &sums{}
			phases[s.phase[i]] = p
		}
		p.n, p.at, p.value = p.n+1, p.at+at.Hours(), p.value+s.value[i]
		all.n, all.value = all.n+1, all.value+s.value[i]
	}
	free := all.n - float64(len(phases)) - 1 // degrees of freedom
	if all.n < minPoints || free < minPoints/2 {
		return trend{}, errTooFew
	}
	var xx, xy, yy float64
	for i, at := range s.at {
		if at >= end/4 {
			p := phases[s.phase[i]]
			x, y := at.Hours()-p.at/p.n, s.value[i]-p.value/p.n
			xx, xy, yy = xx+x*x, xy+x*y, yy+y*y
		}
	}
	slope := xy / xx
	return trend{mean: all.value / all.n, slope: slope, err: math.Sqrt(max(yy-slope*xy, 0) / free / xx)}, nil
}

// judge returns an error if a trend rises more than chance explains, or is too uncertain.
func (s *series) judge(t trend) error {
	limit, noise := max(maxDrift*t.mean, s.floor), max(maxNoise*t.mean, s.noise)
	switch uncertainty := confidence * t.err; {
	case t.slope-uncertainty > limit:
		return fmt.Errorf("%s grows by %.4g per hour ± %.2g, want at most %.4g", s.name, t.slope, uncertainty, limit)
	case uncertainty > noise:
		return fmt.Errorf("%s is too noisy: its growth per hour is known to ± %.4g, want ± %.4g",
			s.name, uncertainty, noise)
	}
	return nil
}
