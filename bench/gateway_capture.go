package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// captureModes are the values of --capture that are compared with the first, and their targets: the ratio of CPU
// per call. open is the ratio of today.
var captureModes = []struct {
	mode       string
	most, open float64
}{{"off", 0, 0}, {"summaries", 1.02, 1.11}, {"always", 1.1, 1.5}}

const (
	// captureSlice is long enough that a clock tick, in which Linux counts CPU, is 1 % of it.
	captureSlice = time.Second
	clockTick    = 10 * time.Millisecond
)

func catalogueGatewayCapture() workload {
	return workload{name: "gateway-capture", title: "patchbay gateway, recorded traffic, modern era on both sides, " +
		count(16, "connection"), call: load.Call{Era: echo.Modern, Tool: echo.Tool}, width: 16, measure: measureCapture,
		duration: func(bool) time.Duration { return time.Duration(len(captureModes)*minRounds) * captureSlice },
		gateway:  &gatewayCell{era: echo.Modern, programs: []string{direct, ours}}}
}

// measureCapture compares the CPU per call of gateways that differ in the recorded traffic. They run one after
// the other in each round, so that the load of the machine affects all of them.
func measureCapture(ctx context.Context, b *bench, w workload, out io.Writer) error {
	if err := compile(ctx, "..", b.bin, "gateway/cmd", []string{"patchbay"}); err != nil {
		return err
	}
	server, err := start(ctx, "server", []string{b.program("server", ours), "-tool", w.call.Tool}, false)
	if err != nil {
		return err
	}
	defer server.stop()
	perCall := make([][]float64, len(captureModes)) // microseconds by mode and round
	var gateways []*commandGateway
	defer func() {
		for _, g := range gateways {
			g.stop()
		}
	}()
	for _, m := range captureModes {
		g, err := b.startCommand(ctx, w, server.url, m.mode)
		if err != nil {
			return fmt.Errorf("patchbay gateway --capture %s: %w", m.mode, err)
		}
		gateways = append(gateways, g)
	}
	rounds, slice := cmp.Or(b.rounds, minRounds), cmp.Or(b.slice, captureSlice)
	for round := range rounds + 1 {
		for i := range gateways {
			i = (i + round) % len(gateways)
			cost, err := gateways[i].measure(slice)
			if err != nil {
				return err
			}
			if round > 0 { // the first one only warms up
				perCall[i] = append(perCall[i], cost)
			}
		}
	}
	writeRow(out, []string{"--capture", "CPU µs per call", "÷ off"})
	writeRow(out, []string{"---", "---:", "---:"})
	for i, m := range captureModes {
		ratios := slices.Clone(perCall[i])
		for round := range ratios {
			ratios[round] /= perCall[0][round]
		}
		ratio := median(ratios)
		writeRow(out, []string{m.mode, fmt.Sprintf("%.1f", median(slices.Clone(perCall[i]))),
			fmt.Sprintf("%.3f", ratio)})
		if m.most > 0 {
			b.record(target{what: w.name + ": " + m.mode + ": CPU ÷ off", got: ratio, most: m.most, open: m.open,
				margin: paired, unit: "×"})
		}
	}
	fmt.Fprintf(out, "\n%s of %v.\n", count(rounds, "round"), slice)
	return nil
}

// A commandGateway is a running `patchbay gateway`, which has no meter, with its load.
type commandGateway struct {
	cmd  *exec.Cmd
	load *load.HTTP
}

var gatewayURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`)

// startCommand starts `patchbay gateway` before a server.
func (b *bench) startCommand(ctx context.Context, w workload, server, mode string) (g *commandGateway, err error) {
	dir, err := os.MkdirTemp(b.bin, "capture")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "mcp.json")
	text := fmt.Sprintf(`{"mcpServers": {"echo": {"url": %q}}, "patchbay": {"limits": {"perCaller": "1000000/s"},
		"servers": {"echo": {"concurrency": %d}}}}`, server, w.width) // the names of a single server have no prefix
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	argv := b.pins.argv(filepath.Join(b.bin, "gateway", "cmd", "patchbay"), "gateway", "--config", file, "--addr",
		"127.0.0.1:0", "--insecure-no-auth", "--capture", mode)
	g = &commandGateway{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	g.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"PATCHBAY_STATE_DIR="+filepath.Join(dir, "state"), "PATCHBAY_VAULT_DIR="+filepath.Join(dir, "vault"))
	output, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.cmd.Stderr = g.cmd.Stdout
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	lines, url := bufio.NewScanner(output), ""
	for url == "" && lines.Scan() {
		url = gatewayURL.FindString(lines.Text())
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, output)
	}()
	if url == "" {
		err = errors.New("it printed no URL")
	} else {
		g.load, err = load.DialHTTP(url, w.width, w.call)
	}
	if err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// measure returns the CPU of a call in microseconds.
func (g *commandGateway) measure(d time.Duration) (float64, error) {
	before, err := cpuOf(g.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	slice, err := g.load.Run(d)
	if err != nil {
		return 0, err
	}
	after, err := cpuOf(g.cmd.Process.Pid)
	return micros(after-before) / float64(slice.Calls), err
}

func (g *commandGateway) stop() {
	if g.load != nil {
		g.load.Close()
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

// cpuOf returns the CPU time of a process, which Linux counts in clock ticks.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const user, system = 11, 12 // fields behind the name of the program, which may contain spaces
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, field := range fields[user : system+1] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
