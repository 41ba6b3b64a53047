//go:build linux

package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// TestMain lets the processes of a measurement be this program.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-role") {
		main()
		return
	}
	os.Exit(testhome.Main(m, (*testing.M).Run))
}

// Each part runs, its caller gets results, and its attackers get responses.
func TestEachPartIsMeasured(t *testing.T) {
	const short = 300 * time.Millisecond
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			c := config{callers: 20, pause: short, quiet: short, ramp: short, loaded: short}
			r, err := measure(t.Context(), p, c)
			if err != nil {
				t.Fatal(err)
			}
			if r.quiet.n == 0 || r.loaded.n == 0 || len(r.attack.Statuses) == 0 || r.attack.Broken > 0 {
				t.Errorf("got %d quiet and %d loaded calls, attacks %+v, want calls and no broken connections",
					r.quiet.n, r.loaded.n, r.attack)
			}
		})
	}
}
