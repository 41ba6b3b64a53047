package main

import (
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

func TestOnlyOurGatewayPrefixesNames(t *testing.T) {
	for _, w := range catalogueGatewayWorkloads() {
		for _, name := range w.gateway.programs {
			if got := w.gateway.callOf(w.call, name).Server != ""; got != (name == ours || name == plain) {
				t.Errorf("%s: %s is called with a prefix: %v", w.name, name, got)
			}
		}
		if !slices.Contains(w.gateway.programs, direct) {
			t.Errorf("%s has no program to compare with", w.name)
		}
	}
}

func TestDifferencesAreOfEachRound(t *testing.T) {
	if got := differences([]float64{5, 30}, []float64{1, 20}); !slices.Equal(got, []float64{4, 10}) {
		t.Errorf("differences = %v, want 4 and 10", got)
	}
}

func TestGatewayOfAListKeepsItsCall(t *testing.T) {
	g := &gatewayCell{servers: 10}
	if got := g.callOf(load.Call{List: 100}, direct); got.Servers != 10 || got.List != 100 {
		t.Errorf("call = %+v, want a list of 100 tools of 10 servers", got)
	}
}
