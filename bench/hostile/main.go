//go:build linux

// Command hostile measures how the latency of an authenticated caller changes while anonymous
// callers attack the same server, and the memory of that server. It prints one table:
//
//	go run ./hostile
//	go run ./hostile -parts modern,bare-modern -trace /tmp/traces
//
// The server, the attackers and the caller run in processes of their own. The attackers have the
// lowest priority (nice 19), because elsewhere they run on other machines. Each part has a control: the
// same attack on a bare net/http handler. What its p99 rises by is due to net/http, the kernel and the
// machine.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// Parameters of a run.
const (
	settleTime = 3 * time.Second // from the start of the attacks to the measurement: the limits are reached
	quietTime  = 3 * time.Second
)

func main() {
	log.SetFlags(0)
	role := flag.String("role", "", "what a process of the run does: server, attack or probe (internal)")
	part := flag.String("part", "", "the part that the process belongs to (internal)")
	address := flag.String("address", "", "the server of the process (internal)")
	names := flag.String("parts", "", "comma-separated parts; default: all")
	callers := flag.Int("callers", 2000, "the number of hostile callers")
	pause := flag.Duration("pause", time.Second, "from the start of an attack of one caller to that of its next")
	loaded := flag.Duration("time", 8*time.Second, "how long the caller is measured under attack")
	rounds := flag.Int("rounds", 1, "how often each part is measured")
	traces := flag.String("trace", "", "a directory for profiles and an execution trace of each attacked server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch *role {
	case "server":
		err = runServer(*part, *address)
	case "attack":
		err = runAttack(ctx, *part, *address, *callers, *pause)
	case "probe":
		err = runProbe(*part, *address)
	default:
		err = run(ctx, config{
			parts: *names, callers: *callers, pause: *pause, quiet: 3 * time.Second, ramp: 3 * time.Second,
			loaded: *loaded, rounds: *rounds, traces: *traces,
		})
	}
	if err != nil {
		log.Fatalf("hostile: %s %s: %v", *role, *part, err)
	}
}

type config struct {
	parts   string
	callers int
	pause   time.Duration // from the start of an attack of one caller to that of its next
	quiet   time.Duration // of the measurement before the attacks
	ramp    time.Duration // from the start of the attacks to the measurement, until the limits are reached
	loaded  time.Duration // of the measurement
	rounds  int
	traces  string
}

func run(ctx context.Context, c config) error {
	selected := parts
	if c.parts != "" {
		selected = nil
		for _, name := range strings.Split(c.parts, ",") {
			i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
			if i < 0 {
				return fmt.Errorf("unknown part %q", name)
			}
			selected = append(selected, parts[i])
		}
	}
	fmt.Println(header)
	for _, p := range selected {
		for range c.rounds {
			r, err := measure(ctx, p, c)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Println(r.row(p))
		}
	}
	fmt.Print(legend)
	return ctx.Err()
}

// measure measures one part once.
func measure(ctx context.Context, p part, c config) (r result, err error) {
	var children []*child
	defer func() {
		for _, c := range slices.Backward(children) {
			c.end()
		}
	}()
	begin := func(prefix []string, role, part, address string, args ...string) (*child, error) {
		child, err := start(ctx, prefix, role, part, address, args...)
		if err == nil {
			children = append(children, child)
		}
		return child, err
	}
	server, probe, target, err := beginServers(p, begin)
	if err != nil {
		return r, err
	}
	if r.quiet, err = probe.measure(c.quiet); err != nil {
		return r, err
	}
	var before figures
	if err := server.ask("figures", &before); err != nil {
		return r, err
	}
	attack, err := begin(attackPrefix, "attack", p.attack, target.address,
		"-callers", fmt.Sprint(c.callers), "-pause", c.pause.String())
	if err != nil {
		return r, err
	}
	select {
	case <-time.After(c.ramp):
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if c.traces != "" {
		if err := server.ask("trace "+c.traces+"/"+p.name, new(string)); err != nil {
			return r, err
		}
	}
	if err := r.measureLoaded(server, probe, c.loaded); err != nil {
		return r, err
	}
	r.server.before = before.Heap
	return r, attack.ask("end", &r.attack)
}

// beginServers starts the server of a part and its caller. The target is the server to be attacked.
func beginServers(
	p part, begin func(prefix []string, role, part, address string, args ...string) (*child, error),
) (server, probe, target *child, err error) {
	measured, other := cmp.Or(p.elsewhere, p.name), ""
	if measured == "introspection" {
		as, err := begin(nil, "server", introspectionEndpoint, "")
		if err != nil {
			return nil, nil, nil, err
		}
		other = as.address
	}
	if server, err = begin(serverPrefix, "server", measured, other); err != nil {
		return nil, nil, nil, err
	}
	target = server
	if p.elsewhere != "" {
		if target, err = begin(serverPrefix, "server", p.attack, ""); err != nil {
			return nil, nil, nil, err
		}
	}
	probe, err = begin(probePrefix, "probe", measured, server.address)
	return server, probe, target, err
}

func (r *result) measureLoaded(server, probe *child, d time.Duration) (err error) {
	var begun, over figures
	if err := server.ask("figures", &begun); err != nil {
		return err
	}
	begin := time.Now()
	if r.loaded, err = probe.measure(d); err != nil {
		return err
	}
	r.time = time.Since(begin)
	if err := server.ask("figures", &over); err != nil {
		return err
	}
	r.server = over.since(begun)
	return nil
}

// Commands that start the processes. The measured ones are in the real-time class if that is allowed (to
// root), because the attackers and the other processes of a busy machine delay normal ones by
// milliseconds: Linux ignores niceness between sessions.
var (
	serverPrefix = realTime(1)
	probePrefix  = realTime(2)
	attackPrefix = []string{"nice", "-n", "19"}
)

func realTime(priority int) []string {
	prefix := []string{"chrt", "--rr", fmt.Sprint(priority)}
	if exec.Command(prefix[0], append(prefix[1:], "true")...).Run() != nil {
		return nil
	}
	return prefix
}

// A child is a process of the run. It writes one line of JSON for each line that it reads, the first
// one unasked, and ends with its standard input.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	address string
}

func start(ctx context.Context, prefix []string, role, part, address string, args ...string) (*child, error) {
	argv := slices.Concat(prefix, []string{os.Args[0], "-role", role, "-part", part, "-address", address}, args)
	c := &child{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.read(&c.address); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait() // its failure has been reported on standard error
}

func (c *child) ask(command string, answer any) error {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		return err
	}
	return c.read(answer)
}

func (c *child) read(answer any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, answer)
}

func (c *child) measure(d time.Duration) (l latencies, err error) {
	var took []time.Duration
	if err := c.ask(d.String(), &took); err != nil {
		return l, err
	}
	return newLatencies(took), nil
}

// answerLines is the other side of [child]: it writes the first answer, and one for each line of
// standard input.
func answerLines(first any, answer func(command string) (any, error)) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(first); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		a, err := answer(in.Text())
		if err == nil {
			err = out.Encode(a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
