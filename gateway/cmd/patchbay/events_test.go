package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// newEventsServer returns a server whose history consists of the numbers 1 to 5, also after a restart.
func newEventsServer() *mcp.Server {
	const last = 5
	type filter struct {
		Above int `json:"above,omitzero"`
	}
	type number struct {
		Number int `json:"number"`
	}
	s := mcp.NewServer("numbers", "1", nil)
	events.Add(events.NewServer(s, nil), &events.Event{Name: "count"}, events.Source[filter, number]{
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
