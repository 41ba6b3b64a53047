package main

import (
	"slices"
	"testing"
)

func TestSelectingOneKindExcludesTheOther(t *testing.T) {
	kinds := func(set settings) (kinds []string) {
		for _, w := range catalogueWorkloads() {
			if set.includes(w) && !slices.Contains(kinds, w.kind()) {
				kinds = append(kinds, w.kind())
			}
		}
		return kinds
	}
	for _, test := range []struct {
		set  settings
		want []string
	}{
		{settings{}, []string{"server", "client"}},
		{settings{servers: "limit"}, []string{"server"}},
		{settings{clients: everything}, []string{"client"}},
		{settings{servers: everything, clients: "patchbay"}, []string{"server", "client"}},
		{settings{quick: true}, []string{"server", "client", "program"}},
	} {
		if got := kinds(test.set); !slices.Equal(got, test.want) {
			t.Errorf("%+v runs workloads of %q, want %q", test.set, got, test.want)
		}
	}
}

func TestBoundsReferToParticipatingPrograms(t *testing.T) {
	for _, w := range catalogueWorkloads() {
		for _, bound := range append(w.bounds, bound{of: ours}) {
			if w.observed != nil {
				if bound.of != ours && bound.of != unobserved {
					t.Errorf("%s: bound refers to %s, which is not in the workload", w.name, bound.of)
				}
				continue
			}
			if w.growth != nil {
				if bound.of != ours && bound.of != w.growth.name(w.growth.sizes[0]) {
					t.Errorf("%s: bound refers to %s, which is not in the workload", w.name, bound.of)
				}
				continue
			}
			if w.gateway != nil {
				if !slices.Contains(w.gateway.programs, bound.of) {
					t.Errorf("%s: bound refers to %s, which is not in the workload", w.name, bound.of)
				}
				continue
			}
			if w.clients {
				i := slices.IndexFunc(catalogueClients(), func(c client) bool { return c.name == bound.of })
				if i < 0 || w.memory && !catalogueClients()[i].sdk {
					t.Errorf("%s: bound refers to client %s, which is not in the workload", w.name, bound.of)
				}
				continue
			}
			i := slices.IndexFunc(catalogueServers(), func(s server) bool { return s.name == bound.of })
			if i < 0 || !w.suits(catalogueServers()[i]) {
				t.Errorf("%s: bound refers to server %s, which is not in the workload", w.name, bound.of)
			}
		}
	}
}
