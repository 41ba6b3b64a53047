package main

import (
	"math/rand/v2"
	"testing"
)

// The replica of a master that was killed is the master when the fault is over, and replicates to the other.
func TestFailover(t *testing.T) {
	needRedis(t)
	for _, engine := range []string{engineSentinel, engineCluster} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			r, err := startRedis(engine, t.TempDir(), &session{history: h})
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			n := &nemesis{redis: r, history: h}
			random := func() *rand.Rand { return rand.New(rand.NewPCG(1, 0)) }
			old := r.master(random())
			if err := n.killMaster(random(), 0); err != nil {
				t.Fatal(err)
			}
			if old.isMaster() || !r.partner(old).isMaster() {
				t.Error("the replica has not replaced the master")
			}
			if now := h.now(); !isRisky(h.risks, now, now) || isRisky(h.risks, now+riskAfter+1, endless) {
				t.Errorf("at %v, the risks are %v", now, h.risks)
			}
		})
	}
}
