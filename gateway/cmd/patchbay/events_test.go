package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// eventsEnv makes the test binary a stdio server with the event type count.
const eventsEnv = "PATCHBAY_TEST_EVENTS"

// newEventsServer returns a server with two event types: count, whose history consists of the numbers 1 to 5, also after
// a restart, and done, which the tool build emits.
func newEventsServer() *mcp.Server {
	const last = 5
	type filter struct {
		Above int `json:"above,omitzero"`
	}
	type number struct {
		Number int `json:"number"`
	}
	s := mcp.NewServer("numbers", "1", nil)
	srv := events.NewServer(s, nil)
	events.Add(srv, &events.Event{Name: "count"}, events.Source[filter, number]{
		Check: func(_ context.Context, f filter, at events.Position) (b events.Batch[number], err error) {
			b.Cursor = strconv.Itoa(last)
			if at.Cursor == "" {
				return b, nil
			}
			n, err := strconv.Atoi(at.Cursor)
			for n++; n <= last && err == nil; n++ {
				if n > f.Above {
					b.Events = append(b.Events, events.Occurrence[number]{ID: fmt.Sprint("n", n), Time: time.Unix(0, 0),
						Data: number{n}, Cursor: strconv.Itoa(n)})
				}
			}
			return b, err
		},
	})
	type build struct {
		Branch string `json:"branch"`
	}
	done := events.Add(srv, &events.Event{Name: "done"}, events.Source[struct{}, build]{})
	mcp.AddTool(s, &mcp.Tool{Name: "build"}, func(_ context.Context, b build) (string, error) {
		return "started", done.Emit(events.Occurrence[build]{ID: "of " + b.Branch, Data: b})
	})
	return s
}

func eventsServer() {
	if err := newEventsServer().Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A cursor continues in another process of the server, over stdio and through a bridge over HTTP.
func TestEventsOfProcesses(t *testing.T) {
	command := []string{"--env", eventsEnv + "=1", "--", os.Args[0]}
	url := bridge(t, append([]string{"--http", ":0"}, command...)...)
	for name, target := range map[string][2][]string{"stdio": {nil, command}, "http": {{url}, nil}} {
		t.Run(name, func(t *testing.T) {
			run := func(verb string, args ...string) string {
				t.Helper()
				all := append(append([]string{"events", verb}, target[0]...), args...)
				cmd := exec.Command(built, append(all, target[1]...)...)
				cmd.Stderr = t.Output()
				out, err := cmd.Output()
				if err != nil {
					t.Errorf("%q: %v", cmd.Args, err)
				}
				return string(out)
			}
			if got := run("list"); !strings.HasPrefix(got, "count [above=integer]\n") {
				t.Errorf("list: %q", got)
			}
			want := "1970-01-01T00:00:00Z  n4  {\"number\":4}\n1970-01-01T00:00:00Z  n5  {\"number\":5}\n"
			if got := run("poll", "count", "above=3", "--cursor", "1"); got != want {
				t.Errorf("poll: got %q, want %q", got, want)
			}
			if got := run("listen", "count", "--cursor", "3", "--count", "2"); got != want {
				t.Errorf("listen: got %q, want %q", got, want)
			}
			if got := run("poll", "count", "--json"); !strings.HasPrefix(got, `{"events":[],"cursor":"5",`) {
				t.Errorf("poll --json: %q", got)
			}
		})
	}
}

// Each caller of a gateway lists, polls and follows the events of its own process of a server, and of no other caller.
func TestEventsThroughGateway(t *testing.T) {
	freshState(t)
	file := filepath.Join(t.TempDir(), "servers.json")
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"builds": map[string]any{"command": os.Args[0], "env": map[string]string{eventsEnv: "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	keys, cursors := map[string]string{}, map[string]string{}
	for _, name := range []string{"ann", "bob"} {
		var created struct{ Key string }
		text := mustRun(t, "gateway", "keys", "new", name, "--all-servers", "--json", "--config", file)
		if err := json.Unmarshal([]byte(text), &created); err != nil || created.Key == "" {
			t.Fatalf("got %s, %v, want a key", text, err)
		}
		keys[name] = created.Key
	}
	url, _ := readKey(start(t, "gateway", "--config", file, "--addr", "127.0.0.1:0"), false)
	as := func(name string, args ...string) string {
		t.Helper()
		return mustRun(t, append(args, "--header", "Authorization:Bearer "+keys[name])...)
	}
	for name := range keys {
		if got := as(name, "events", "list", url); !strings.Contains(got, "done\n") || !strings.Contains(got, "count [above") {
			t.Errorf("%s: list: %q", name, got)
		}
		var now struct{ Cursor string }
		text := as(name, "events", "poll", url, "done", "--json")
		if err := json.Unmarshal([]byte(text), &now); err != nil || now.Cursor == "" {
			t.Fatalf("%s: got %s, %v, want a cursor", name, text, err)
		}
		cursors[name] = now.Cursor
	}
	for name := range keys {
		as(name, "call", url, "build", "branch="+name)
	}
	for name := range keys {
		want := `"data":{"branch":"` + name + `"}`
		for verb, more := range map[string][]string{"poll": nil, "listen": {"--count", "1"}} {
			args := append([]string{"events", verb, url, "done", "--json", "--cursor", cursors[name]}, more...)
			if got := as(name, args...); !strings.Contains(got, want) || strings.Count(got, `"eventId"`) != 1 {
				t.Errorf("%s: %s: got %s, want only the event with %s", name, verb, got, want)
			}
		}
	}
}

func TestInterruptOfEventsListen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted")
	}
	p := start(t, "events", "listen", "count", "--cursor", "4", "--json", "--env", eventsEnv+"=1", "--", os.Args[0])
	const want = `{"eventId":"n5","name":"count","timestamp":"1970-01-01T00:00:00Z","data":{"number":5},"cursor":"5"}`
	if line := p.readLine(); line != want {
		t.Errorf("got %q, want %q", line, want)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.checkExit(0, time.Now(), timeout)
}
