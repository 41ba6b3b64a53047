package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

const (
	// listenersOfChange is the number of clients that are notified of each change.
	listenersOfChange = 1_000
	// changesInSlice is the number of successive changes in one measurement. It
	// is large enough for a readable CPU time.
	changesInSlice = 5
	// maxFirst is the target of the time until the first client is notified of an updated
	// resource, in milliseconds.
	maxFirst = 1
	// maxFanOut is the largest accepted CPU time of a change, as a multiple of
	// bare net/http.
	maxFanOut, openFanOut = 1.2, 1.35 // the latter is that of today, in sessions
)

func catalogueChangeWorkloads() []workload {
	var all []workload
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		add := func(name, title, tool string, only ...string) {
			all = append(all, workload{
				name:     name + string(era),
				title:    fmt.Sprintf("%s, until %d clients are notified, %s era", title, listenersOfChange, era),
				call:     load.Call{Era: era, Tool: tool},
				programs: listening,
				only:     only,
				measure:  measureChanges,
				duration: func(quick bool) time.Duration { return time.Duration(3+changeRounds(quick)) * time.Second },
				quick:    true,
			})
		}
		add("change-", "a change of the list of tools", echo.ChangeTool, listeners()...)
		add("updated-", "an update of a resource", echo.UpdateTool, baseline, ours)
	}
	return all
}

func changeRounds(quick bool) int {
	if quick {
		return 3
	}
	return 9
}

// A listeningServer is a server with subscribed clients.
type listeningServer struct {
	name    string
	proc    *process
	streams *load.Streams
	cpu     []float64 // of one change, µs, by round
	wall    []float64 // until the last client is notified, ms, by round
	first   []float64 // until the first client is notified, ms, by round
}

// measureChanges changes a list and waits until all clients are notified. It
// runs in rounds, as workloads of calls do.
func measureChanges(ctx context.Context, b *bench, w workload, out io.Writer) error {
	var all []*listeningServer
	defer func() {
		for _, l := range all {
			l.streams.Close()
			l.proc.stop()
		}
	}()
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		l, err := b.listen(ctx, s, w)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, l)
	}
	for round := range cmp.Or(b.rounds, changeRounds(b.quick)) {
		for i := range all {
			l := all[(i+round)%len(all)]
			if err := l.measure(); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	b.writeChanges(out, w, all)
	return nil
}

// listen starts a server, opens the streams of all clients and changes the list
// once.
func (b *bench) listen(ctx context.Context, s server, w workload) (*listeningServer, error) {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return nil, err
	}
	streams, err := load.DialStreams(proc.url, w.call.Era, w.call.Tool)
	if err != nil {
		proc.stop()
		return nil, err
	}
	if err = streams.Open(listenersOfChange, openTimeout); err == nil {
		_, _, err = streams.Change()
	}
	if err != nil {
		streams.Close()
		proc.stop()
		return nil, err
	}
	return &listeningServer{name: s.name, proc: proc, streams: streams}, nil
}

// measure makes the changes of one slice.
func (l *listeningServer) measure() error {
	before, err := l.proc.meter.Read()
	if err != nil {
		return err
	}
	var wall, first time.Duration
	for range changesInSlice {
		soonest, last, err := l.streams.Change()
		if err != nil {
			return err
		}
		wall, first = wall+last, first+soonest
	}
	after, err := l.proc.meter.Read()
	if err != nil {
		return err
	}
	l.cpu = append(l.cpu, (after.CPU-before.CPU).Seconds()*1e6/changesInSlice)
	l.wall = append(l.wall, wall.Seconds()*1e3/changesInSlice)
	l.first = append(l.first, first.Seconds()*1e3/changesInSlice)
	return nil
}

func (b *bench) writeChanges(out io.Writer, w workload, all []*listeningServer) {
	i := slices.IndexFunc(all, func(l *listeningServer) bool { return l.name == baseline })
	columns := []string{"server", "CPU ms/change", "wall ms/change", "first ms", "CPU µs/listener"}
	if i >= 0 {
		columns = append(columns, "CPU ÷ "+baseline, "wall ÷ "+baseline)
	}
	writeRow(out, columns)
	writeRow(out, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...))
	for _, l := range all {
		cpu := median(slices.Clone(l.cpu))
		row := []string{l.name, fmt.Sprintf("%.1f", cpu/1e3), fmt.Sprintf("%.1f", median(slices.Clone(l.wall))),
			fmt.Sprintf("%.1f", median(slices.Clone(l.first))), fmt.Sprintf("%.1f", cpu/listenersOfChange)}
		if l.name == ours && w.call.Tool == echo.UpdateTool {
			b.record(target{what: w.name + ": " + w.title + ": until the first one", got: median(slices.Clone(l.first)),
				most: maxFirst, unit: "ms"})
		}
		if i >= 0 {
			ratio := ratioByRound(l.cpu, all[i].cpu)
			row = append(row, formatRatio(ratio), formatRatio(ratioByRound(l.wall, all[i].wall)))
			if l.name == ours {
				t := target{what: w.name + ": " + w.title + ": CPU ÷ " + baseline, got: ratio,
					most: maxFanOut, open: openFanOut,
					unit: "×", margin: noisy}
				if j := slices.IndexFunc(all, func(l *listeningServer) bool { return l.name == before }); j >= 0 {
					t.before = ratioByRound(all[j].cpu, all[i].cpu)
				}
				b.record(t)
			}
		}
		writeRow(out, row)
	}
}

// ratioByRound returns the median of the ratios of each round.
func ratioByRound(figures, others []float64) float64 {
	var all []float64
	for i, f := range figures {
		if others[i] > 0 {
			all = append(all, f/others[i])
		}
	}
	return median(all)
}
