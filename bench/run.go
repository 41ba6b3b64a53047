package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A bench is the state that all workloads of one run share.
type bench struct {
	servers []server
	clients []client
	bin     string   // directory of the built programs
	node    string   // path of Node, if a server needs it
	notes   []string // for the head of the report
	pins    pinning
	before  string // folder of the module whose programs are called before
	quick   bool
	rounds  int           // if not zero, of every workload of calls
	slice   time.Duration // if not zero, of every program in a round
	targets []target      // recorded so far
	// workload is the name of the current one.
	workload string
}

// runningPrograms are the programs that run for one workload.
type runningPrograms struct {
	subjects []*subject
	server   *process // called by the clients, nil if they have their own
}

// A subject is one measured program.
type subject struct {
	name   string
	peer   bool // measured for a shorter time
	slow   bool // and warmed up longer
	call   load.Call
	proc   *process
	load   load.Load
	rounds []figures
}

// figures are the results of one slice.
type figures struct {
	rate   float64       // calls per second
	busy   float64       // share of one core the program used
	cpu    time.Duration // of the program, per call
	allocs float64       // per call
	bytes  float64       // per call
}

// start runs the program of s for w.
func (b *bench) start(ctx context.Context, s server, w workload) (*process, error) {
	argv := b.pins.argv
	if w.spread {
		argv = b.pins.spreadArgv
	}
	return start(ctx, s.name, argv(b.command(s, w)...), w.stdio)
}

// command returns the command line of s for w.
func (b *bench) command(s server, w workload) []string {
	command := []string{b.programOf(s.name, w.programsDir(), s.dir)}
	if s.script != "" {
		command = []string{b.node, "--expose-gc", filepath.Join("server", filepath.FromSlash(s.script))}
	}
	return slices.Concat(command, w.serverArgs(), s.args)
}

// program returns the path of a built program.
func (b *bench) program(kind, dir string) string { return filepath.Join(b.bin, kind, dir) }

// programOf returns the path of the program with a name in the report.
func (b *bench) programOf(name, kind, dir string) string {
	if name == before {
		return filepath.Join(b.bin, before, kind, dir)
	}
	return b.program(kind, dir)
}

// report measures one workload and writes its table.
func (b *bench) report(ctx context.Context, out io.Writer, w workload) error {
	b.workload = w.name
	if w.measure != nil {
		writeHeading(out, w)
		if err := w.measure(ctx, b, w, out); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		return nil
	}
	subjects, err := b.measure(ctx, w)
	if err != nil {
		return err
	}
	writeHeading(out, w)
	writeCalls(out, w, b.paceOf(w).after(subjects), subjects)
	b.recordBounds(w, subjects)
	return nil
}

// measure runs one workload. All programs run during the whole workload. In
// each round each program is measured for one slice, in an order that rotates
// from round to round, so that a disturbance of the machine affects all
// programs. On a machine that is too busy for the pace, there are fewer rounds.
// Slow programs are measured in the first rounds only.
func (b *bench) measure(ctx context.Context, w workload) ([]*subject, error) {
	open := b.openServers
	switch {
	case w.gateway != nil:
		open = b.openGateways
	case w.observed != nil:
		open = b.openObserved
	case w.growth != nil:
		open = b.openGrowth
	case w.webhook:
		open = b.openWebhooks
	case w.clients:
		open = b.openClients
	}
	c, err := open(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	defer c.stop()
	p := b.paceOf(w)
	overdue := time.Now().Add(b.overdue(w))
	for _, s := range c.subjects {
		if err := s.warmUp(p); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", w.name, s.name, err)
		}
	}
	for round := range p.rounds {
		if round >= minRounds && time.Now().After(overdue) {
			break
		}
		for i := range c.subjects {
			s := c.subjects[(i+round)%len(c.subjects)]
			if s.slow && round >= minRounds {
				continue
			}
			f, err := s.run(p.of(s))
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", w.name, s.name, err)
			}
			s.rounds = append(s.rounds, f)
		}
	}
	return c.subjects, nil
}

// openServers starts the servers of a workload, each with its load.
func (b *bench) openServers(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		sub, err := b.open(ctx, s, w)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		c.subjects = append(c.subjects, sub)
	}
	return c, nil
}

func (c *runningPrograms) stop() {
	for _, s := range c.subjects {
		s.stop()
	}
	if c.server != nil {
		c.server.stop()
	}
}

// open starts a server and connects a load to it.
func (b *bench) open(ctx context.Context, s server, w workload) (*subject, error) {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return nil, err
	}
	sub := &subject{name: s.name, peer: s.peer, slow: s.slow, call: w.callOf(s), proc: proc}
	if w.stdio {
		sub.load, err = load.NewStdio(proc.in, proc.out, w.width, sub.call)
	} else {
		sub.load, err = load.DialHTTP(proc.url, w.width, sub.call)
	}
	if err != nil {
		proc.stop()
		return nil, err
	}
	return sub, nil
}

// warmUp makes calls before the first round.
func (s *subject) warmUp(p pace) error {
	if !s.slow {
		_, err := s.load.Run(p.of(s) / 2)
		return err
	}
	begin := time.Now()
	for calls := 0; calls < slowWarmUpCalls && time.Since(begin) < slowWarmUp; {
		slice, err := s.load.Run(p.of(s))
		if err != nil {
			return err
		}
		calls += slice.Calls
	}
	return nil
}

// run makes calls for one slice between two readings of the meter.
func (s *subject) run(d time.Duration) (figures, error) {
	before, err := s.proc.meter.Read()
	if err != nil {
		return figures{}, err
	}
	slice, err := s.load.Run(d)
	if err != nil {
		return figures{}, err
	}
	after, err := s.proc.meter.Read()
	if err != nil {
		return figures{}, err
	}
	calls := float64(slice.Calls)
	cpu := after.CPU - before.CPU
	return figures{
		rate:   calls / slice.Wall.Seconds(),
		busy:   cpu.Seconds() / slice.Wall.Seconds(),
		cpu:    cpu / time.Duration(slice.Calls),
		allocs: float64(after.Mallocs-before.Mallocs) / calls,
		bytes:  float64(after.Bytes-before.Bytes) / calls,
	}, nil
}

func (s *subject) stop() {
	s.load.Close()
	s.proc.stop()
}
