package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// startingCold is the directory of servers that only support stdio. The servers
// under server/ have a meter, and link net/http for it.
const startingCold = "cold"

const (
	// coldRounds is the number of starts of each server.
	coldRounds, quickColdRounds = 40, 10
	// coldTimeout bounds one start, including the exit.
	coldTimeout = 20 * time.Second
	// maxColdStart is the largest accepted start time, as a multiple of the
	// baseline.
	maxColdStart = 1.15
)

func catalogueColdWorkloads() []workload {
	var all []workload
	for _, era := range eras() {
		all = append(all, workload{
			name:     "cold-" + string(era),
			title:    fmt.Sprintf("start of a server on stdio with one tool, until its first response, %s era", era),
			call:     load.Call{Era: era, Tool: echo.Tool},
			stdio:    true,
			programs: startingCold,
			only:     append(listeners(), "limit-json", "ts-v2", "ts-v1"),
			measure:  measureStarts,
			duration: func(quick bool) time.Duration {
				return 5*time.Second + time.Duration(startRounds(quick))*60*time.Millisecond
			},
			quick: true,
		})
	}
	return all
}

func startRounds(quick bool) int {
	if quick {
		return quickColdRounds
	}
	return coldRounds
}

// A starter is a program whose start is measured repeatedly.
type starter struct {
	name string
	argv []string
	slow bool
	size int64     // of the program in bytes; zero for a script
	wall []float64 // until the first response, ms, by round
	cpu  []float64 // until the exit, ms, by round
}

// measureStarts starts each server in turn and waits for the response to the
// first message of a client. Only this process is pinned; the servers inherit
// its affinity.
func measureStarts(ctx context.Context, b *bench, w workload, out io.Writer) error {
	var all []*starter
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		st := &starter{name: s.name, argv: b.command(s, w), slow: s.slow}
		if s.script == "" {
			info, err := os.Stat(st.argv[0])
			if err != nil {
				return err
			}
			st.size = info.Size()
		}
		if _, _, err := st.start(ctx, w); err != nil { // fill the file cache
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, st)
	}
	for round := range startRounds(b.quick) {
		for i := range all {
			st := all[(i+round)%len(all)]
			if st.slow && round >= minRounds {
				continue
			}
			wall, cpu, err := st.start(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
			st.wall = append(st.wall, wall.Seconds()*1e3)
			st.cpu = append(st.cpu, cpu.Seconds()*1e3)
		}
	}
	b.writeStarts(out, w, all)
	return nil
}

// start runs the program, waits for its first response, closes its input and
// waits for its exit.
func (s *starter) start(ctx context.Context, w workload) (wall, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, coldTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	request, lines := append(load.FirstRequest(w.call.Era), '\n'), bufio.NewReader(pipe)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	_, err = in.Write(request)
	var answer []byte
	if err == nil {
		answer, err = lines.ReadBytes('\n')
	}
	wall = time.Since(begin)
	in.Close()
	io.Copy(io.Discard, lines)
	exitErr := cmd.Wait()
	if err == nil {
		err = load.CheckFirstResponse(w.call.Era, answer)
	}
	if err != nil {
		return 0, 0, err
	}
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), exitErr
}

func (b *bench) writeStarts(out io.Writer, w workload, all []*starter) {
	i := slices.IndexFunc(all, func(s *starter) bool { return s.name == baseline })
	columns := []string{"server", "wall ms", "CPU ms", "program MB"}
	if i >= 0 {
		columns = append(columns, "wall ÷ "+baseline, "CPU ÷ "+baseline)
	}
	writeRow(out, columns)
	writeRow(out, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...))
	for _, s := range all {
		size := "–"
		if s.size > 0 {
			size = fmt.Sprintf("%.1f", float64(s.size)/1e6)
		}
		row := []string{s.name, fmt.Sprintf("%.2f", median(slices.Clone(s.wall))),
			fmt.Sprintf("%.2f", median(slices.Clone(s.cpu))), size}
		if i >= 0 {
			ratio := ratioByRound(s.wall, all[i].wall)
			row = append(row, formatRatio(ratio), formatRatio(ratioByRound(s.cpu, all[i].cpu)))
			if s.name == ours {
				b.record(target{what: w.name + ": " + w.title + ": wall ÷ " + baseline, got: ratio, most: maxColdStart,
					unit: "×"})
			}
		}
		writeRow(out, row)
	}
	fmt.Fprint(out, "\nThe programs are built by go build and not stripped. CPU is the time of the whole process, "+
		"including its exit.\n")
}
