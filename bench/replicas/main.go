// Command replicas measures what sessions that several processes share cost, against a redis-server that
// it starts: the CPU of Redis and of the processes for each operation, and memory for each session.
//
//	cd bench && go run ./replicas
//
// The page docs/replicas-capacity.md calculates with the figures. The processes are handlers in one program, each
// with its own connections to Redis, so a client reaches them without a network.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"text/tabwriter"
)

func main() {
	calls := flag.Int("calls", 20000, "operations of each row")
	sessions := flag.Int("sessions", 100000, "sessions whose memory is measured")
	rounds := flag.Int("rounds", 5, "rounds of the ratios, whose median is printed")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *calls, *sessions, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, calls, sessions, rounds int) error {
	r, err := startRedis()
	if err != nil {
		return err
	}
	defer r.stop()
	three, err := newReplicas(ctx, 3, r.url(), false)
	if err != nil {
		return err
	}
	defer three.close()
	if three.stored, err = newReplicas(ctx, 3, r.url(), true); err != nil {
		return err
	}
	defer three.stored.close()
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "operation\tRedis CPU\tcommands\tprocess CPU\tp50\tp99\t")
	for _, o := range operations {
		f, err := o.measure(r, three, calls)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		fmt.Fprintf(w, "%s\t%v\t%.1f\t%v\t%v\t%v\t\n", o.name, f.redis, f.commands, f.process, f.p50, f.p99)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := ratios(ctx, out, r.url(), calls, rounds); err != nil {
		return err
	}
	return memory(out, r, three, sessions)
}
