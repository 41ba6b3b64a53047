//go:build unix

package main

import (
	"os"
	"strings"
	"sync"
	"testing"

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
		"an answered call":               {"", []batch{ended(answered).ran(begin, effect)}},
		"a call that was not sent":       {"", []batch{ended(unsent)}},
		"a failed call that ran":         {"", []batch{ended(failed).ran(begin)}},
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
		if len(taken) != 1 || taken[0] != floodStderr || p.taker() != os.Getpid() {
			t.Fatalf("taken: %q by %d, want one by %d", taken, p.taker(), os.Getpid())
		}
		if err := p.remove(); err != nil || p.taker() != 0 {
			t.Fatalf("remove: %v, taken by %d", err, p.taker())
		}
	}
}
