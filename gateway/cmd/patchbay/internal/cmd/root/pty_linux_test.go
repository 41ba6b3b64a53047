package root

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// A pty is a terminal at which a test types.
type pty struct {
	t               *testing.T
	master, replica *os.File

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	shown   string
	done    bool
}

func newPTY(t *testing.T) *pty {
	t.Helper()
	master, replica := openTerminal(t)
	p := &pty{t: t, master: master, replica: replica}
	p.changed = sync.NewCond(&p.mu)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1000)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.shown += string(b[:n])
			p.changed.Broadcast()
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { replica.Close(); <-ended; master.Close() })
	return p
}

// await waits until the terminal shows text, and then types. It returns false if the command ends before.
func (p *pty) await(text, typed string) (found bool) {
	p.mu.Lock()
	for !strings.Contains(p.shown, text) && !p.done {
		p.changed.Wait()
	}
	if found = strings.Contains(p.shown, text); found {
		p.shown = ""
	}
	p.mu.Unlock()
	if _, err := io.WriteString(p.master, typed); err != nil {
		p.t.Error(err)
	}
	return found
}

// run runs a command at the terminal while user types.
func (p *pty) run(user func(), args ...string) outcome {
	var stdout strings.Builder
	var typing sync.WaitGroup
	typing.Go(user)
	status := Run(p.t.Context(), args, p.replica, &stdout, p.replica)
	p.mu.Lock()
	p.done = true
	p.changed.Broadcast()
	p.mu.Unlock()
	typing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return outcome{status, stdout.String(), p.shown}
}

// The answer to a yes-or-no question is a line, which the user can edit on the terminal.
func TestYesOrNoIsALine(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	odd := listenHTTP(t, newOddServer())
	const field = "y or n"
	for name, test := range map[string]struct {
		args  []string
		waits string
		typed string
		want  int
	}{
		"y":        {[]string{url, "deploy", "environment=staging"}, field, "y\n", exit.OK},
		"N":        {[]string{url, "deploy", "environment=staging"}, field, "N\n", exit.Tool},
		":decline": {[]string{url, "deploy", "environment=staging"}, field, ":decline\n", exit.Tool},
		"Ctrl-D":   {[]string{url, "deploy", "environment=staging"}, field, "\x04", exit.Tool},
		"Enter":    {[]string{odd, "page"}, "Open it", "\n", exit.Tool},
		"page y":   {[]string{odd, "page"}, "Open it", "y\x15n\n", exit.Tool}, // Ctrl-U deletes the line
	} {
		t.Run(name, func(t *testing.T) {
			p := newPTY(t)
			o := p.run(func() { p.await(test.waits, test.typed) }, append([]string{"call"}, test.args...)...)
			if o.status != test.want {
				t.Errorf("exit code %d, want %d: %s%s", o.status, test.want, o.stdout, o.stderr)
			}
		})
	}
}
