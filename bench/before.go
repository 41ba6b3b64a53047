package main

import (
	"context"
	"os/exec"
	"slices"
	"strings"
)

// before is the name of the programs of this project in another version.
const before = "before"

// addBefore adds the programs of another version beside those of this version, in the same rounds.
func (b *bench) addBefore(ctx context.Context, workloads []workload) {
	version, err := exec.CommandContext(ctx, "git", "-C", b.before, "log", "-1", "--format=%h of %cs").Output()
	if err != nil {
		version = []byte("another version")
	}
	b.notes = append(b.notes, "`before` is this project as of "+strings.TrimSpace(string(version)))
	if i := slices.IndexFunc(b.servers, func(s server) bool { return s.name == ours }); i >= 0 {
		other := b.servers[i]
		other.name, other.description = before, "this project in another version"
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
