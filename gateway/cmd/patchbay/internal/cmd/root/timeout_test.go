package root

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// addTick adds a tool that sends progress until its call is cancelled.
func addTick(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "tick"}, func(ctx context.Context, _ struct{}) (string, error) {
		for n := 1; ; n++ {
			mcp.Progress(ctx, float64(n), 0, "tick")
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	})
}

// tooLate is longer than a command takes after its --timeout has ended it, on a loaded machine.
const tooLate = 8 * time.Second

// withLimit runs a command with a --timeout of first, which is enough unless the machine is slow. It
// doubles the limit as long as it was not enough for what is tested, and returns the last one.
func withLimit(first time.Duration, run func(limit time.Duration) (enough bool)) (limit time.Duration) {
	const most = 20 * time.Second
	for limit = first; !run(limit) && 2*limit <= most; limit *= 2 {
	}
	return limit
}

// --timeout ends a call even though the server sends messages all the time.
func TestTimeoutBoundsACall(t *testing.T) {
	mcptest.NoLeaks(t)
	s, m := newTaskServer(tasks.NewMemory())
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	url := listenHTTP(t, s)
	for _, revision := range mcptest.Revisions() {
		var o outcome
		var took time.Duration
		limit := withLimit(500*time.Millisecond, func(limit time.Duration) bool {
			began := time.Now()
			o = patchbay(t, "", "call", url, "tick", "--timeout", limit.String(), "--revision", revision)
			took = time.Since(began)
			return strings.Contains(o.stderr, "progress: ")
		})
		if o.status != exit.Timeout || took > limit+tooLate || !strings.Contains(o.stderr, "progress: ") ||
			!strings.HasSuffix(o.stderr, fmt.Sprintf(
				"patchbay: call: not complete within %v (--timeout); the server may have run tools/call\n", limit)) {
			t.Errorf("%s: exit code %d after %v, %s", revision, o.status, took, o.stderr)
		}
	}
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		const begun = "asleep" // the message of the task, which runs
		var o outcome
		var took time.Duration
		limit := withLimit(900*time.Millisecond, func(limit time.Duration) bool {
			began := time.Now()
			o = p.run("call --timeout "+limit.String(), "sleep")
			took = time.Since(began)
			return strings.Contains(o.stderr, begun)
		})
		if o.status != exit.Timeout || took > limit+tooLate || !strings.Contains(o.stderr,
			fmt.Sprintf("call: not complete within %v (--timeout); the task was cancelled", limit)) {
			t.Errorf("task: exit code %d after %v, %s", o.status, took, o.stderr)
		}
		if p.targetLast {
			return // the task ends with the server
		}
		id := p.start("sleep")
		limit = withLimit(900*time.Millisecond, func(limit time.Duration) bool {
			o = p.run("task watch --timeout "+limit.String(), id)
			return strings.Contains(o.stderr, begun)
		})
		if o.status != exit.Timeout || !strings.Contains(o.stderr, "The task continues.") ||
			!strings.Contains(o.stderr, fmt.Sprintf("watch: not complete within %v (--timeout)", limit)) {
			t.Errorf("task watch: exit code %d, %s", o.status, o.stderr)
		}
		p.check(exit.OK, "", "", "task cancel", id)
	})
}

// A slowReader waits before the first byte, as a user does.
type slowReader struct {
	wait time.Duration
	text io.Reader
}

func (r *slowReader) Read(b []byte) (int, error) {
	<-time.After(r.wait)
	r.wait = 0
	return r.text.Read(b)
}

// --timeout does not count the time that the user takes for an answer.
func TestTimeoutDoesNotCountQuestions(t *testing.T) {
	forEachTransport(t, func(t *testing.T, c *taskClient) {
		var status int
		var stdout, stderr *cmdtest.Buffer
		withLimit(1500*time.Millisecond, func(limit time.Duration) bool {
			stdout, stderr = &cmdtest.Buffer{}, &cmdtest.Buffer{}
			p := newRun(&slowReader{limit + 200*time.Millisecond, strings.NewReader("y\n")}, stdout, stderr)
			p.IO.Interactive, p.IO.Err.Terminal = true, true
			status = runCommandLine(t.Context(), p, c.args("call --timeout "+limit.String(), "ask"))
			return status != exit.Timeout
		})
		if status != exit.OK || stdout.String() != "yes\n" {
			t.Errorf("exit code %d, %q, %q, want yes", status, stdout, stderr)
		}
	})
}

// A subscription ends as --for says; --timeout bounds connecting only.
func TestTimeoutDoesNotEndListen(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	var o outcome
	withLimit(300*time.Millisecond, func(limit time.Duration) bool {
		o = patchbay(t, "", "listen", url, "--timeout", limit.String(), "--for", (2 * limit).String())
		return o.status != exit.Timeout
	})
	if o.status != exit.OK || !strings.Contains(o.stderr, "listening to: ") {
		t.Errorf("exit code %d, %s", o.status, o.stderr)
	}
}

// An attempt that --timeout ends does not lose what the others have found out.
func TestTimeoutBoundsProbe(t *testing.T) {
	modern := mcp.NewServer("modern", "1", nil)
	url := listenHTTP(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "initialize" {
			<-ctx.Done()
			return nil, errors.New("too late")
		}
		return modern.ServeMCP(ctx, req)
	}))
	const found = "revision    2026-07-28"
	var o outcome
	var took time.Duration
	limit := withLimit(700*time.Millisecond, func(limit time.Duration) bool {
		began := time.Now()
		o = patchbay(t, "", "probe", url, "--timeout", limit.String())
		took = time.Since(began)
		return strings.Contains(o.stdout, found)
	})
	if o.status != exit.OK || took > limit+tooLate || !strings.Contains(o.stdout, found) {
		t.Errorf("exit code %d after %v, %s%s", o.status, took, o.stdout, o.stderr)
	}
}

func TestPausedLimitIsThatOfTheCommand(t *testing.T) {
	synctest.Test(t, testPausedLimit)
}

func testPausedLimit(t *testing.T) {
	p := newRun(strings.NewReader(""), io.Discard, io.Discard)
	p.Ask.PauseLimit()() // without a limit
	p.Flags.Timeout = 30 * time.Millisecond
	err := p.Client.Bounded(t.Context(), &target.Target{URL: "http://127.0.0.1"}, "x", func(ctx context.Context) error {
		resume := p.Ask.PauseLimit()
		select {
		case <-ctx.Done():
			t.Error("ended during the pause")
		case <-time.After(2 * p.Flags.Timeout):
		}
		resume()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if code := exit.Code(t.Context(), err); code != exit.Timeout || err.Error() != "x: not complete within 30ms (--timeout)" {
		t.Errorf("got %d, %v", code, err)
	}
	if p.Ask.Limit.Load() != nil {
		t.Error("the limit outlives its command")
	}
}
