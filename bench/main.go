// Command bench compares MCP servers and clients in one interleaved run: this
// project's, those of other SDKs, and bare baseline programs. It writes a
// report in Markdown to standard output. Run it in the module's directory:
//
//	go run . [-quick] [-servers limit,patchbay,…] [-clients all] [-workloads modern-json,…]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"
)

// settings are the values of the command-line flags.
type settings struct {
	quick                       bool
	servers, clients, workloads string
	write, before               string
	rounds                      int
	slice                       time.Duration
}

// slack is added to twice the expected duration of a run to get its deadline.
const slack = 2 * time.Minute

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	var set settings
	flag.BoolVar(&set.quick, "quick", false,
		"the workloads with targets, in short slices: a check rather than a measurement")
	flag.StringVar(&set.servers, "servers", "",
		"comma-separated servers, or all (default: all but optional ones, in a quick run those written in Go; "+
			"none if -clients is given)")
	flag.StringVar(&set.clients, "clients", "",
		"comma-separated clients, or all (default: all; none if -servers is given)")
	flag.StringVar(&set.workloads, "workloads", "", "comma-separated workloads (default: all)")
	flag.StringVar(&set.write, "write", "", "file to write the document to")
	flag.StringVar(&set.before, "before", "",
		"folder of another version of this module, whose programs of this project are measured beside these; "+
			"in a quick run only where a target is missed")
	flag.IntVar(&set.rounds, "rounds", 0, "rounds of each workload of calls")
	flag.DurationVar(&set.slice, "slice", 0, "time for each program in a round of calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, set); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, set settings) error {
	servers, clients, workloads, err := set.picked()
	if err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	log.Print("building")
	b := &bench{servers: servers, clients: clients, bin: bin, quick: set.quick, rounds: set.rounds, slice: set.slice,
		before: set.before}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil && len(strings.Fields(string(load))) > 0 {
		b.notes = append(b.notes, "load average before the run: "+strings.Fields(string(load))[0])
	}
	if set.before != "" && !set.quick {
		b.addBefore(ctx, workloads)
	}
	if !areGateways(workloads) {
		if err := b.findNode(ctx, set.servers != "" && set.servers != everything); err != nil {
			return err
		}
	}
	if err := b.build(ctx, workloads); err != nil {
		return err
	}
	b.pins = pin() // after the builds, which use all cores
	expected := b.expected(workloads)
	log.Printf("%d workloads, about %v", len(workloads), expected.Round(time.Second))
	measuring, cancel := context.WithTimeout(ctx, 2*expected+slack)
	defer cancel()
	writeHead(out, b)
	var tables strings.Builder
	for _, w := range workloads {
		log.Print(w.name)
		err := b.report(measuring, io.MultiWriter(out, &tables), w)
		if measuring.Err() != nil {
			return context.Cause(measuring) // do not report servers that were killed by the cancellation
		}
		if err != nil {
			return err
		}
	}
	if set.quick {
		err = b.confirm(ctx, io.MultiWriter(out, &tables), workloads)
	}
	writeTargets(out, b.targets)
	if err != nil {
		return err
	}
	if set.write == "" {
		return nil
	}
	return b.writeDocument(set.write, tables.String(), workloads)
}

// picked returns the selected servers, clients and workloads.
func (set settings) picked() ([]server, []client, []workload, error) {
	servers, err := pick(catalogueServers(), set.servers,
		func(s server) string { return s.name },
		func(s server) bool { return !s.optional && !(set.quick && s.slow) })
	if err != nil {
		return nil, nil, nil, fmt.Errorf("servers: %w", err)
	}
	clients, err := pick(catalogueClients(), set.clients,
		func(c client) string { return c.name },
		func(client) bool { return true })
	if err != nil {
		return nil, nil, nil, fmt.Errorf("clients: %w", err)
	}
	workloads, err := pick(catalogueWorkloads(), set.workloads,
		func(w workload) string { return w.name },
		set.includes)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("workloads: %w", err)
	}
	return servers, clients, workloads, nil
}

// includes reports whether a workload runs by default. Selecting only servers
// excludes the workloads of clients, and the other way round.
func (set settings) includes(w workload) bool {
	if set.quick && !w.isQuick() {
		return false
	}
	if w.isGateway() || w.observed != nil {
		return set.quick && set.servers == "" && set.clients == "" // a full run without them takes ten minutes
	}
	if w.clients {
		return set.clients != "" || set.servers == ""
	}
	return set.servers != "" || set.clients == ""
}
