package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

const (
	coldServers = 10
	coldTools   = 10_000 // of all servers
	// maxColdListCPU and maxColdListMemory are the targets of the first list of a gateway: CPU until its
	// last page in seconds, and peak resident memory in MB.
	maxColdListCPU    = 0.4
	maxColdListMemory = 100
)

func catalogueGatewayColdList() workload {
	return workload{
		name: fmt.Sprintf("gateway-cold-list-%d-%d", coldTools, coldServers),
		title: fmt.Sprintf("a gateway starts, and lists all %d tools, of 1 KB each, of %d servers over HTTP "+
			"for the first time",
			coldTools, coldServers),
		call:    load.Call{Era: echo.Modern, List: coldTools, Servers: coldServers},
		quick:   true,
		measure: measureColdList,
		duration: func(quick bool) time.Duration {
			return time.Duration(coldListRounds(quick)) * 3 * time.Second / 2
		},
		gateway: &gatewayCell{era: echo.Modern, programs: []string{direct, ours}},
	}
}

func coldListRounds(quick bool) int {
	if quick {
		return minRounds
	}
	return 9
}

// measureColdList starts a gateway in each round, and reads the resources of its process after the first
// list. One server process serves all entries of the configuration.
func measureColdList(ctx context.Context, b *bench, w workload, out io.Writer) error {
	server, err := start(ctx, "server",
		[]string{b.program("server", ours), "-tools", fmt.Sprint(coldTools / coldServers), "-wide"}, false)
	if err != nil {
		return err
	}
	defer server.stop()
	writeRow(out, []string{"program", "CPU s", "wall s", "peak MB", "MB allocated"})
	writeRow(out, []string{"---", "---:", "---:", "---:", "---:"})
	for _, extra := range []gateway.Extra{"", gateway.Pins} {
		name := ours
		var all [4][]float64
		for range coldListRounds(b.quick) {
			argv := b.pins.argv(b.program("relay", "relay"), "-kind", ours, "-url", server.url,
				"-servers", fmt.Sprint(coldServers), "-extra", string(extra))
			figures, err := coldListOnce(ctx, argv, w.call)
			if err != nil {
				return err
			}
			for i, f := range figures {
				all[i] = append(all[i], f)
			}
		}
		if extra != "" {
			name += ", " + string(extra)
		}
		cpu, memory := median(slices.Clone(all[0])), median(slices.Clone(all[2]))
		writeRow(out, []string{name, fmt.Sprintf("%.2f", cpu), fmt.Sprintf("%.2f", median(all[1])),
			fmt.Sprintf("%.0f", memory), fmt.Sprintf("%.0f", median(all[3]))})
		b.record(target{what: w.name + ": " + name + ": CPU", got: cpu, most: maxColdListCPU, unit: "s"})
		if memory > 0 {
			b.record(target{what: w.name + ": " + name + ": peak memory",
				got: memory, most: maxColdListMemory, unit: "MB"})
		}
	}
	fmt.Fprintf(out, "\n%s.\n", count(coldListRounds(b.quick), "round"))
	return nil
}

// coldListOnce returns seconds of CPU and of wall time, the peak memory and the allocated memory in MB.
func coldListOnce(ctx context.Context, argv []string, call load.Call) (figures [4]float64, err error) {
	proc, err := start(ctx, ours, argv, false)
	if err != nil {
		return figures, err
	}
	defer proc.stop()
	before, err := proc.meter.Read()
	if err != nil {
		return figures, err
	}
	begin := time.Now()
	l, err := load.DialHTTP(proc.url, 1, call) // makes one call
	if err != nil {
		return figures, err
	}
	defer l.Close()
	wall := time.Since(begin)
	after, err := proc.meter.Read()
	if err != nil {
		return figures, err
	}
	const mega = 1e6
	peak, _ := memoryOf(proc.cmd.Process.Pid, "VmHWM:")
	return [4]float64{(after.CPU - before.CPU).Seconds(), wall.Seconds(), peak / mega,
		float64(after.Bytes-before.Bytes) / mega}, nil
}
