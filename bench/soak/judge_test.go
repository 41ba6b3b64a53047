package main

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// hour returns the series of an hour with a quiet point each minute and a restart every ten.
func hour(value func(minute int, random *rand.Rand) float64) *series {
	s, random := &series{name: "goroutines", floor: 1, noise: 10}, rand.New(rand.NewPCG(1, 2))
	for minute := range 60 {
		s.add(time.Duration(minute)*time.Minute, minute%10, value(minute, random))
	}
	return s
}

func TestJudge(t *testing.T) {
	sawtooth := func(minute int) float64 { return 1000 + 400*float64(minute%10) }
	for _, test := range []struct {
		name  string
		value func(minute int, random *rand.Rand) float64
		want  string // within the error
	}{
		{"constant", func(int, *rand.Rand) float64 { return 1000 }, ""},
		{"zero", func(int, *rand.Rand) float64 { return 0 }, ""},
		{"noise", func(_ int, r *rand.Rand) float64 { return 1000 + 20*r.NormFloat64() }, ""},
		{"falls", func(m int, _ *rand.Rand) float64 { return 1000 - float64(m) }, ""},
		{"rises in the first quarter", func(m int, _ *rand.Rand) float64 { return float64(min(m, 15)) }, ""},
		{"fills after each restart", func(m int, r *rand.Rand) float64 { return sawtooth(m) + 10*r.NormFloat64() }, ""},
		{"one more at the end", func(m int, _ *rand.Rand) float64 { return 10 + float64(m/55) }, ""},
		{"leak of 2 %", func(m int, _ *rand.Rand) float64 { return 1000 + 20*float64(m)/60 }, "grows"},
		{"noisy leak", func(m int, r *rand.Rand) float64 { return 1000 + 2*float64(m) + 10*r.NormFloat64() }, "grows"},
		{"leak under a sawtooth", func(m int, _ *rand.Rand) float64 { return sawtooth(m) + float64(m) }, "grows"},
		{"small leak in few", func(m int, _ *rand.Rand) float64 { return 10 + float64(m)/10 }, "grows"},
		{"noise that hides a leak", func(_ int, r *rand.Rand) float64 { return 1000 + 300*r.NormFloat64() }, "noisy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := hour(test.value)
			fitted, err := s.fit(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			err = s.judge(fitted)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v (%+v), want %q", err, fitted, test.want)
			}
		})
	}
}

func TestFitNeedsPoints(t *testing.T) {
	s := hour(func(int, *rand.Rand) float64 { return 1 })
	s.at, s.value = s.at[:20], s.value[:20]
	if _, err := s.fit(time.Hour); !errors.Is(err, errTooFew) {
		t.Errorf("got %v, want %v", err, errTooFew)
	}
}
