package main

import (
	"context"
	"strconv"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// unobserved is the program without an observer, to which that with one is compared.
const unobserved = "off"

// An observedCell is what is special of a workload that measures an observer: client and server, and
// perhaps a gateway between them, are in one process, and one of them has it.
type observedCell struct{ observer, side string }

// catalogueObservedWorkloads have the budgets of package otelmcp. Allocations are exact; CPU time is
// that of a shared machine, so its bounds have room.
func catalogueObservedWorkloads() []workload {
	var all []workload
	add := func(observer, side, title string, bounds ...bound) {
		name := "observed-" + observer
		if side != "server" {
			name = "observed-" + side + "-" + observer
		}
		for i := range bounds {
			bounds[i].of = unobserved
		}
		all = append(all, workload{name: name, title: title + ", one call in flight", width: 1, clients: true,
			call: load.Call{Era: echo.Modern, Tool: echo.Tool}, bounds: bounds,
			observed: &observedCell{observer, side}})
	}
	const none = 0.5 // of an allocation: figures are rounded, and the runtime allocates too
	add("idle", "server", "a server whose observer does nothing", bound{moreAllocs: none, cpu: 1.1})
	add("metrics", "server", "a server with metrics", bound{moreAllocs: 2, above: 0.8})
	add("unsampled", "server", "a server with metrics and traces that are not sampled",
		bound{moreAllocs: 4, open: 5, above: 3})
	add("sampled", "server", "a server with metrics and traces that are sampled",
		bound{moreAllocs: 9, moreBytes: 2 << 10, above: 5})
	add("metrics", "client", "a client with metrics", bound{moreAllocs: 2, open: 3})
	add("unsampled", "client", "a client with metrics and traces that are not sampled", bound{moreAllocs: 8})
	add("sampled", "client", "a client with metrics and traces that are sampled", bound{moreAllocs: 12})
	add("idle", "gateway", "a gateway whose observer does nothing", bound{moreAllocs: 4})
	add("metrics", "gateway", "a gateway with metrics", bound{moreAllocs: 6, open: 7})
	add("sampled", "gateway", "a gateway with metrics and traces that are sampled", bound{moreAllocs: 21, open: 22})
	return all
}

// openObserved starts both programs of a workload.
func (b *bench) openObserved(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	for _, name := range []string{unobserved, ours} {
		observer := w.observed.observer
		if name == unobserved {
			observer = unobserved
		}
		argv := b.pins.argv(b.program("client", "observed"), "-width", strconv.Itoa(w.width),
			"-observer", observer, "-side", w.observed.side)
		proc, err := start(ctx, name, argv, true)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.subjects = append(c.subjects, &subject{name: name, call: w.call, proc: proc,
			load: load.NewRemote(proc.in, proc.out)})
	}
	return c, nil
}
