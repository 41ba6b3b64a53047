package main

import "slices"

// before is the name of the programs of this project in another version.
const before = "before"

// addBefore adds the programs of another version beside those of this version, in the same rounds.
func (b *bench) addBefore(workloads []workload) {
	if i := slices.IndexFunc(b.servers, func(s server) bool { return s.name == ours }); i >= 0 {
		other := b.servers[i]
		other.name = before
		b.servers = slices.Insert(b.servers, i+1, other)
	}
	if i := slices.IndexFunc(b.clients, func(c client) bool { return c.name == ours }); i >= 0 {
		other := b.clients[i]
		other.name = before
		b.clients = slices.Insert(b.clients, i+1, other)
	}
	for i := range workloads {
		w := &workloads[i]
		if slices.Contains(w.only, ours) {
			w.only = append(slices.Clone(w.only), before)
		}
		if w.gateway != nil {
			w.gateway.programs = append(slices.Clone(w.gateway.programs), before)
		}
	}
}
