//go:build unix

package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Each rule of a run with a gateway is broken once, and each history that keeps them passes.
func TestGatewayChecker(t *testing.T) {
	const begin, effect = "begin a p0 s25 process-1", "run a"
	ended := func(o outcome) batch { return all(ended("echo", "a", o)) }
	for name, c := range map[string]struct {
		want    string
		batches []batch
	}{
		"an answered call":         {"", []batch{ended(answered).ran(begin, effect)}},
		"a call that was not sent": {"", []batch{ended(unsent)}},
		"a call that its tool failed": {"", []batch{ended(failed).with(func(b *batch) {
			b.Attempts[0].Error = "tool error"
		}).ran(begin)}},
		"an error of a tool that did not run": {"untrue", []batch{ended(failed).with(func(b *batch) {
			b.Attempts[0].Error = "tool error"
		})}},
		"cancelled by a shutdown": {"", []batch{ended(failed).with(func(b *batch) {
			b.Attempts[0].Error = cancelledByServer
			b.Faults = []fault{{Kind: terminate, End: time.Hour}}
		}).ran(begin)}},
		"cancelled without a shutdown": {"lost", []batch{ended(failed).with(func(b *batch) {
			b.Attempts[0].Error = cancelledByServer
		}).ran(begin)}},
		"an unknown tool": {"untrue", []batch{ended(unsent).with(func(b *batch) {
			b.Attempts[0].Error = "unknown tool"
		})}},
		"an error of neither":            {"lost", []batch{ended(failed).ran(begin)}},
		"an unclear call that ran":       {"", []batch{ended(unknown).ran(begin, effect)}},
		"an unclear call that ran later": {"", []batch{ended(unknown), all().ran(begin, effect)}},
		"a call in progress":             {"", []batch{all().ran(begin)}},
		"modern HTTP serves all":         {"", []batch{all().ran("begin a p0 h26 -", "begin b p1 h26 -")}},
		"answered, not run":              {"lost", []batch{ended(answered)}},
		"answered, no effect":            {"lost", []batch{ended(answered).ran(begin)}},
		"run twice":                      {"doubled", []batch{ended(unknown).ran(begin, begin)}},
		"run once more later":            {"doubled", []batch{ended(answered).ran(begin, effect), all().ran(begin)}},
		"two effects":                    {"doubled", []batch{ended(answered).ran(begin, effect, effect)}},
		"reported as not run":            {"untrue", []batch{ended(unsent).ran(begin)}},
		"reported as not run, ran later": {"untrue", []batch{ended(unsent), all().ran(begin)}},
		"an error without members":       {"lost", []batch{ended(untyped)}},
		"one process, two principals":    {"crossed", []batch{all().ran(begin, "begin b p1 s25 process-1")}},
		"one session, two principals": {"crossed", []batch{all().ran("begin a p0 h25 session-x"),
			all().ran("begin b p1 h25 session-x")}},
		"the result of another": {"crossed", []batch{ended(answered).ran(begin, effect).with(func(b *batch) {
			b.Attempts[0].Got = "p1 b"
		})}},
		"a late end": {"liveness", []batch{ended(unknown).with(func(b *batch) {
			b.Attempts[0].End = b.Attempts[0].Deadline + 2*grace
		})}},
		"no end": {"liveness", []batch{all().with(func(b *batch) {
			b.Open = []attempt{{ID: 1, Deadline: b.Now - 2*grace}}
		})}},
		"found by a worker": {"crossed", []batch{all().with(func(b *batch) {
			b.Direct = []violation{{Rule: "crossed"}}
		})}},
	} {
		checker := newGatewayChecker()
		var broken []string
		for _, b := range c.batches {
			for _, v := range checker.check(b) {
				broken = append(broken, v.Rule)
			}
		}
		found := len(broken) == 1 && c.want != "" && strings.HasPrefix(broken[0], c.want)
		if !found && (c.want != "" || len(broken) > 0) {
			t.Errorf("%s: got %q, want %q", name, broken, c.want)
		}
	}
}

// The error of the gateway decides what the outcome of a call is.
func TestClassifyGateway(t *testing.T) {
	result := func(members map[string]any) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"dev.patchbay/error": members}}
	}
	fault := func(message, data string) *mcp.Error {
		return &mcp.Error{Code: -32000, Message: message, Data: []byte(data)}
	}
	for name, c := range map[string]struct {
		res  *mcp.CallToolResult
		err  error
		want outcome
	}{
		"answer":           {&mcp.CallToolResult{}, nil, answered},
		"tool error":       {&mcp.CallToolResult{IsError: true}, nil, failed},
		"not run":          {result(map[string]any{"code": "x", "server": "s", "mayHaveRun": false}), nil, unsent},
		"may have run":     {result(map[string]any{"code": "x", "server": "s", "mayHaveRun": true}), nil, unknown},
		"says neither":     {result(map[string]any{"code": "x", "server": "s"}), nil, untyped},
		"without server":   {result(map[string]any{"code": "x", "mayHaveRun": true}), nil, untyped},
		"error, not run":   {nil, fault("m", `{"code":"x","server":"s","mayHaveRun":false}`), unsent},
		"error, other":     {nil, fault("m", `{"x":1}`), failed},
		"unknown tool":     {nil, fault(`unknown tool "x"`, ""), unsent},
		"connection":       {nil, &mcp.TransportError{Err: mcp.ErrClosed}, unsent},
		"connection, sent": {nil, &mcp.TransportError{Err: mcp.ErrClosed, MayHaveRun: true}, unknown},
		"untyped":          {nil, os.ErrClosed, untyped},
	} {
		if got, kind, _ := classifyGateway(c.res, c.err); got != c.want {
			t.Errorf("%s: got %s (%s), want %s", name, got, kind, c.want)
		}
	}
}

// An action happens in all of its cells before it happens in one of them again, also if a step was not
// reached at first.
func TestCellsAreAllReached(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, f := range gatewayFaults {
		c := newGatewayCells()
		missed := 0
		for range len(f.cells()) + 3 {
			at := c.next(f, random)
			if missed < 3 && random.IntN(2) == 0 {
				missed++
				c.putBack(at, random)
				continue
			}
			c.reach(at)
		}
		for _, at := range f.cells() {
			if n := c.reached[at]; n < 1 || n > 4-missed {
				t.Errorf("%+v was reached %d times, want between 1 and %d", at, n, 4-missed)
			}
		}
	}
}

// A process that an upstream has started counts as left after the upstream has ended, and a guard
// process after its gateway.
func TestProcessesLeft(t *testing.T) {
	s := &gatewayRun{options: options{dir: t.TempDir()}, generation: 1, orphans: map[orphan]time.Time{},
		guards: map[int]int{}}
	start := func(cmd *exec.Cmd, c upstreamConfig) (end func()) {
		c.Dir = s.dir
		text, _ := json.Marshal(c)
		cmd.Env = append(os.Environ(), upstreamVariable+"="+string(text))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	left := func(want int, when string) {
		t.Helper()
		for key := range s.orphans { // it has been known for long
			s.orphans[key] = time.Now().Add(-2 * orphanTime)
		}
		if got := s.checkOrphans(); len(got) != want {
			t.Errorf("%s: got %v, want %d violations", when, got, want)
		}
	}
	upstream := exec.Command("sleep", "60")
	endUpstream := start(upstream, upstreamConfig{Name: "s25", Generation: 1})
	defer endUpstream()
	helper := upstreamConfig{Name: "s25", Generation: 1, Parent: upstream.Process.Pid}
	endHelper := start(exec.Command("sleep", "60"), helper)
	defer endHelper()
	guard := exec.Command("sh", "-c", "read -r end", "mcp-guard")
	input, _ := guard.StdinPipe()
	endGuard := start(guard, upstreamConfig{HTTP: true})
	defer endGuard()
	defer input.Close()
	if pids, children := guards(os.Getpid()); !slices.Equal(pids, []int{guard.Process.Pid}) || children < 3 {
		t.Errorf("got the guards %v of %d children, want %d of at least 3", pids, children, guard.Process.Pid)
	}
	s.guards[guard.Process.Pid] = 1
	left(0, "all live")
	left(0, "all live, later")
	endUpstream()
	left(0, "without the upstream")
	left(1, "without the upstream, later")
	s.generation = 2
	left(1, "without the gateway")
	left(2, "without the gateway, later")
	endHelper()
	endGuard()
	left(0, "at the end")
}

// One of several processes executes the action of a step.
func TestPlanIsTakenOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/plan", 0o700); err != nil {
		t.Fatal(err)
	}
	p := plan{dir, "s25", stepCall}
	for range 20 {
		if err := p.set(floodStderr); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var taken []string
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if action := p.take(); action != "" {
					mu.Lock()
					defer mu.Unlock()
					taken = append(taken, action)
				}
			})
		}
		all.Wait()
		if len(taken) != 1 || taken[0] != floodStderr || p.claimant() != os.Getpid() {
			t.Fatalf("taken: %q by %d, want one by %d", taken, p.claimant(), os.Getpid())
		}
		if err := p.remove(); err != nil || p.claimant() != 0 {
			t.Fatalf("remove: %v, taken by %d", err, p.claimant())
		}
	}
}
