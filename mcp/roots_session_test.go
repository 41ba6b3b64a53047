package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const rootsChanged = "notifications/roots/list_changed"

// A rootsClient answers roots/list with its current root, and counts the requests.
type rootsClient struct {
	asked  atomic.Int32
	root   string
	answer func(params json.RawMessage) // called before each answer; may be nil
}

// options returns those of a client that announces changes, if that is set and its revision can.
func (r *rootsClient) options(announces bool) *mcptest.Options {
	capabilities := object{"roots": object{}, "elicitation": object{}}
	if announces {
		capabilities["roots"] = object{"listChanged": true}
	}
	return &mcptest.Options{Capabilities: capabilities, Answer: func(method string, params json.RawMessage) (any, error) {
		if method != "roots/list" {
			return acceptResult(object{"value": true}), nil
		}
		r.asked.Add(1)
		root := r.root
		if r.answer != nil {
			r.answer(params)
		}
		return object{"roots": []object{{"uri": root}}}, nil
	}}
}

func newRootsServer(t *testing.T, opts *mcp.ServerOptions) *mcp.Server {
	s := newServer(t, opts)
	list := func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(roots), err
	}
	addTool(s, "roots", list)
	addTool(s, "roots-then-ask", func(ctx context.Context) (string, error) {
		before, err := list(ctx)
		if err == nil {
			_, err = mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		}
		return before, err
	})
	return s
}

// Requirement: ROOT-08
func TestSessionsAskForRootsOncePerChange(t *testing.T) {
	s := newRootsServer(t, nil)
	for _, announces := range []bool{true, false} {
		mcptest.RunOn(t, s, mcptest.Combinations(), nil, func(t *testing.T, c *mcptest.Client) {
			mine, others := &rootsClient{root: "file:///a"}, &rootsClient{root: "file:///b"}
			mine.ask(t, c, announces, others)
		})
	}
}

func (r *rootsClient) ask(t *testing.T, c *mcptest.Client, announces bool, others *rootsClient) {
	other := c.Another(others.options(announces))
	c = c.Another(r.options(announces))
	cached := announces && !c.Modern() && c.Transport != mcptest.Replicas // another process may learn of a change
	steps := []struct {
		name        string
		do          func()
		cached, all int32 // requests so far: with the cache, and without one
	}{
		{"first call", func() {}, 1, 1},
		{"second call", func() {}, 1, 2},
		{"after a call of another client", func() { callTool(t, other, "roots", nil) }, 1, 3},
		{"after a change", func() {
			r.root = "file:///changed"
			if !c.Modern() {
				c.Notify(rootsChanged, nil)
			}
		}, 2, 4},
		{"again", func() {}, 2, 5},
	}
	for _, step := range steps {
		step.do()
		got, want := callText(t, c, "roots"), step.all
		if cached {
			want = step.cached
		}
		if !strings.Contains(got, r.root) || r.asked.Load() != want {
			t.Errorf("%s: got %s after %d requests, want %s after %d", step.name, got, r.asked.Load(), r.root, want)
		}
	}
	if !c.Since("2025-06-18") {
		return
	}
	before := r.asked.Load()
	callText(t, c, "roots-then-ask")
	if asked := r.asked.Load() - before; asked > 1 || c.Modern() && asked != 1 {
		t.Errorf("a call of two rounds asked for the roots %d times", asked)
	}
}

// Answers that a change has overtaken, that the server refuses or that are long are not cached.
//
// Requirement: ROOT-08
func TestOnlyCurrentAndValidRootsAreCached(t *testing.T) {
	s := newRootsServer(t, nil)
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for name, r := range map[string]*rootsClient{
			"changed meanwhile": {root: "file:///a"}, "invalid": {root: "http://example.com"},
			"long": {root: "file:///" + strings.Repeat("a", 20_000)},
		} {
			client := c.Another(r.options(true))
			if name == "changed meanwhile" {
				r.answer = func(json.RawMessage) { client.Notify(rootsChanged, nil) }
			}
			for range 2 {
				_, _ = client.Try("tools/call", object{"name": "roots"})
			}
			if got := r.asked.Load(); got != 2 {
				t.Errorf("%s: asked %d times, want 2", name, got)
			}
		}
	})
}

func TestRootsChangedIsCalledForChanges(t *testing.T) {
	var calls atomic.Int32
	var block chan struct{}
	s := newRootsServer(t, &mcp.ServerOptions{Logger: discardLogger(), RootsChanged: func(ctx context.Context) {
		if p := mcp.PrincipalFrom(ctx); p == nil || p.Subject != "ada" {
			t.Errorf("got principal %+v, want ada", p)
		}
		if calls.Add(1) == 2 {
			<-block
		}
		panic(errors.New("recovered"))
	}})
	opts := &mcptest.Options{Principal: &mcp.Principal{Subject: "ada"}}
	mcptest.RunOn(t, s, oneProcess(mcptest.Before(mcptest.Modern)), opts, func(t *testing.T, c *mcptest.Client) {
		calls.Store(0)
		block = make(chan struct{})
		c.Notify(rootsChanged, nil)
		synctest.Wait()
		if got := calls.Load(); got != 1 {
			t.Errorf("one change: got %d calls, want 1", got)
		}
		var sent sync.WaitGroup
		for range 5 {
			sent.Go(func() { c.Notify(rootsChanged, nil) })
			synctest.Wait() // the call for the first is in progress before the others arrive
		}
		if got := calls.Load(); got != 2 {
			t.Errorf("while a call is in progress: got %d calls, want 2", got)
		}
		close(block)
		sent.Wait()
		synctest.Wait()
		if got := calls.Load(); got != 3 {
			t.Errorf("after several changes: got %d calls, want 3", got)
		}
	})
}

// The client of this package announces changes in sessions.
//
// Requirement: ROOT-03
func TestClientsAnnounceChangedRoots(t *testing.T) {
	var hooked atomic.Int32
	s := newRootsServer(t, &mcp.ServerOptions{RootsChanged: func(context.Context) { hooked.Add(1) }})
	for _, on := range mcptest.Combinations() {
		synctest.Test(t, func(t *testing.T) {
			hooked.Store(0)
			var asked atomic.Int32
			c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) {
				return []mcp.Root{{URI: fmt.Sprint("file:///", asked.Add(1))}}, nil
			}})
			call := func() string {
				text, err := mcp.CallTool[string](t.Context(), c, "roots", nil)
				if err != nil {
					t.Errorf("%s: %v", on, err)
				}
				return text
			}
			call()
			second := call()
			if err := c.RootsChanged(t.Context()); err != nil {
				t.Errorf("%s: %v", on, err)
			}
			synctest.Wait()
			third, want, wantHooked := call(), [2]string{"file:///1", "file:///2"}, int32(1)
			if on.Modern() || on.Transport == mcptest.Replicas {
				want = [2]string{"file:///2", "file:///3"} // the roots are not cached
			}
			if on.Modern() {
				wantHooked = 0
			}
			if !strings.Contains(second, want[0]) || !strings.Contains(third, want[1]) || hooked.Load() != wantHooked {
				t.Errorf("%s: got %s, %s and %d calls of RootsChanged, want %s and %d", on, second, third, hooked.Load(), want, wantHooked)
			}
		})
	}
}

// Requirement: ROOT-08
func TestWithinRoots(t *testing.T) {
	roots := []mcp.Root{{URI: "file:///src/a"}, {URI: "file:///C:/work"}, {URI: "http://example.com"}, {URI: "file:///x/../"}}
	for target, want := range map[string]bool{
		"/src/a": true, "/src/a/b.go": true, "file:///src/a/b%20c": true, `c:\work\x`: true,
		"/src": false, "/src/ab": false, "/src/a/../b": false, "a": false, "": false, `C:\Windows`: false,
		"http://example.com": false, "/x": false, "file:///src%2Fa": false,
	} {
		if got := mcp.WithinRoots(roots, target); got != want {
			t.Errorf("WithinRoots(%q): got %v, want %v", target, got, want)
		}
	}
	if mcp.WithinRoots(nil, "/") {
		t.Error("without roots: got true")
	}
}

func ExampleWithinRoots() {
	roots := []mcp.Root{{URI: "file:///home/ada/project"}} // of mcp.Roots(ctx)
	for _, path := range []string{"/home/ada/project/go.mod", "/home/ada/project/../.ssh/id_ed25519", "/etc/passwd"} {
		fmt.Println(path, mcp.WithinRoots(roots, path))
	}
	// Output:
	// /home/ada/project/go.mod true
	// /home/ada/project/../.ssh/id_ed25519 false
	// /etc/passwd false
}
