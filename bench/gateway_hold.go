package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// latencyConnections are enough that few calls of a fixed rate wait for a connection.
const latencyConnections = 32

func catalogueGatewayMeasures() []workload {
	call := load.Call{Era: echo.Modern, Tool: echo.Tool}
	var all []workload
	for _, rate := range []int{500, 2000} {
		all = append(all, workload{
			name:    fmt.Sprintf("gateway-latency-%d", rate),
			title:   fmt.Sprintf("gateways, latency at a fixed rate of %d calls a second, modern era", rate),
			call:    call,
			width:   latencyConnections,
			measure: measureLatency,
			duration: func(quick bool) time.Duration {
				return time.Duration(len(relays)) * latencyRounds(quick) * latencySlice
			},
			gateway: &gatewayCell{era: echo.Modern, programs: relays, rate: rate},
		})
	}
	return append(all, workload{
		name:     fmt.Sprintf("gateway-idle-%d", manySessions),
		title:    fmt.Sprintf("gateways, %d idle sessions", manySessions),
		call:     load.Call{Era: echo.Session, Tool: echo.Tool},
		measure:  measureGatewaySessions,
		duration: func(bool) time.Duration { return 2 * manySessions * 300 * time.Microsecond },
		sessions: manySessions,
		quick:    true,
		gateway:  &gatewayCell{era: echo.Modern, programs: []string{direct, ours}},
	})
}

// latencySlice is one round of a program at a fixed rate.
const latencySlice = time.Second

func latencyRounds(quick bool) time.Duration {
	if quick {
		return minRounds
	}
	return 5
}

// measureLatency compares the latencies of calls at a fixed rate.
func measureLatency(ctx context.Context, b *bench, w workload, out io.Writer) error {
	c, err := b.openGateways(ctx, w)
	if err != nil {
		return err
	}
	defer c.stop()
	rounds := int(latencyRounds(b.quick))
	half, most := make([][]float64, len(c.subjects)), make([][]float64, len(c.subjects)) // by program and round
	for round := range rounds + 1 {
		for i := range c.subjects {
			i = (i + round) % len(c.subjects)
			all, err := c.subjects[i].load.(*load.HTTP).RunAt(w.gateway.rate, latencySlice)
			if err != nil {
				return fmt.Errorf("%s: %w", c.subjects[i].name, err)
			}
			if round > 0 { // the first one only warms up
				half[i] = append(half[i], micros(all[len(all)/2]))
				most[i] = append(most[i], micros(all[len(all)*99/100]))
			}
		}
	}
	writeRow(out, []string{"program", "p50 µs", "p99 µs", "added p50", "added p99"})
	writeRow(out, []string{"---", "---:", "---:", "---:", "---:"})
	for i, s := range c.subjects {
		row := []string{s.name}
		for _, all := range [][][]float64{half, most} {
			row = append(row, fmt.Sprintf("%.0f", median(append([]float64(nil), all[i]...))))
		}
		for _, all := range [][][]float64{half, most} {
			row = append(row, fmt.Sprintf("%.0f", median(differences(all[i], all[0]))))
		}
		writeRow(out, row)
	}
	fmt.Fprintf(out, "\n%s of %v.\n", count(rounds, "round"), latencySlice)
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// differences returns a - b for each round.
func differences(a, b []float64) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] - b[i]
	}
	return all
}

// measureGatewaySessions opens idle sessions at a gateway.
func measureGatewaySessions(ctx context.Context, b *bench, w workload, out io.Writer) error {
	c := &runningPrograms{}
	defer c.stop()
	var all []memoryCost
	for _, name := range w.gateway.programs {
		cost, err := b.measureGatewayMemory(ctx, w, c, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, cost)
		if name == ours {
			b.record(target{what: w.name + ": " + w.title + ": one", got: cost.heap + cost.stack, most: maxPerSession,
				unit: "B", margin: steady})
		}
	}
	writeMemoryCosts(out, "session", all)
	return nil
}

func (b *bench) measureGatewayMemory(
	ctx context.Context, w workload, c *runningPrograms, name string,
) (memoryCost, error) {
	proc, err := b.startGateway(ctx, w, c, name)
	if err != nil {
		return memoryCost{}, err
	}
	defer proc.stop()
	sessions, err := load.DialSessions(proc.url)
	if err != nil {
		return memoryCost{}, err
	}
	defer sessions.Close()
	return measureMemory(proc, name, sessions, w.sessions)
}
