package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

const (
	pinnedServers = 20
	pinnedTools   = 200 // of all servers
	// maxInitialize is the target of the first response of a gateway whose servers do not run, in
	// milliseconds: clients show a server as unavailable after some hundred.
	maxInitialize = 50
)

func catalogueGatewayPins() workload {
	return workload{
		name:    fmt.Sprintf("gateway-initialize-%d-pins", pinnedServers),
		title:   fmt.Sprintf("a gateway opens, and answers initialize and tools/list, from the pins of %d servers that do not run", pinnedServers),
		call:    load.Call{Era: echo.Session},
		quick:   true,
		measure: measureInitialize,
		duration: func(quick bool) time.Duration {
			return time.Duration(initializeRounds(quick)) * maxInitialize * time.Millisecond
		},
		gateway: &gatewayCell{era: echo.Session, programs: []string{direct, ours}, servers: pinnedServers},
	}
}

func initializeRounds(quick bool) int {
	if quick {
		return 10
	}
	return 50
}

// measureInitialize opens gateways with a file of pins, in this process.
func measureInitialize(ctx context.Context, b *bench, w workload, out io.Writer) error {
	dir, err := os.MkdirTemp(b.bin, "pins")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "state.db")
	if _, err := initializeOnce(ctx, path, true); err != nil { // starts the servers, and pins what they offer
		return err
	}
	var opened, initialized, listed []float64
	for range initializeRounds(b.quick) {
		took, err := initializeOnce(ctx, path, false)
		if err != nil {
			return err
		}
		opened, initialized, listed = append(opened, millis(took[0])), append(initialized, millis(took[1])), append(listed, millis(took[2]))
	}
	writeRow(out, []string{"until", "median ms", "most ms"})
	writeRow(out, []string{"---", "---:", "---:"})
	for _, row := range []struct {
		name string
		all  []float64
	}{{"the gateway is open", opened}, {"the response to initialize", initialized}, {"all tools are listed", listed}} {
		writeRow(out, []string{row.name, fmt.Sprintf("%.2f", median(slices.Clone(row.all))), fmt.Sprintf("%.2f", slices.Max(row.all))})
	}
	b.record(target{what: w.name + ": the response to initialize, at most", got: slices.Max(initialized), most: maxInitialize, unit: "ms"})
	fmt.Fprintf(out, "\n%s, in the process of the benchmark. No server was started.\n", count(len(opened), "round"))
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// initializeOnce opens a gateway, and returns the times until it is open, until it has answered
// initialize, and until all tools are listed.
func initializeOnce(ctx context.Context, path string, first bool) (took [3]time.Duration, err error) {
	var started atomic.Int64
	begin := time.Now()
	state, err := bolt.OpenState(path, nil)
	if err != nil {
		return took, err
	}
	h, err := gateway.Open(gateway.Servers{N: pinnedServers, Era: echo.Session, State: state, Server: func() *mcp.Server {
		started.Add(1)
		return patchbay.NewLister(pinnedTools / pinnedServers)
	}})
	if err != nil {
		return took, err
	}
	defer h.Close()
	took[0] = time.Since(begin)
	c, err := mcp.Connect(ctx, mcp.InMemory(gateway.LocalView(h)), &mcp.ClientOptions{Revision: echo.Session.Revision()})
	if err != nil {
		return took, err
	}
	defer c.Close()
	took[1] = time.Since(begin)
	tools := 0
	for _, err := range c.Tools(ctx) {
		if err != nil {
			return took, err
		}
		tools++
	}
	took[2] = time.Since(begin)
	switch {
	case tools != pinnedTools:
		return took, fmt.Errorf("%d tools are listed, want %d", tools, pinnedTools)
	case !first && started.Load() > 0:
		return took, errors.New("a server was started")
	}
	return took, nil
}
