package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// taskStoreEnv makes the test binary a server with tasks on stdio. Its value is the file of the
// store.
const taskStoreEnv = "PATCHBAY_TEST_TASKS"

// runTaskServer serves one client as patchbay serve does.
func runTaskServer(file string) error {
	store, err := bolt.OpenTasks(file, nil)
	if err != nil {
		return err
	}
	s, m := newTaskServer(store)
	if err := m.Recover(context.Background()); err != nil {
		return err
	}
	return errors.Join(s.Run(context.Background(), mcp.Stdio()), m.Close(context.Background()), store.Close())
}

// newTaskServer returns a server with tools that run as tasks and restart with the server.
func newTaskServer(store tasks.Store) (*mcp.Server, *tasks.Server) {
	s := mcp.NewServer("tasks", "1.0", nil)
	m := tasks.NewServer(s, &tasks.Options{Store: store, PollInterval: 50 * time.Millisecond})
	again := &tasks.ToolOptions{Restartable: true}
	tasks.AddTool(m, &mcp.Tool{Name: "add"}, again, func(ctx context.Context, in struct{ A, B int }) (int, error) {
		mcp.Progress(ctx, 1, 2, "adding "+hostile)
		return in.A + in.B, nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "must"}, &tasks.ToolOptions{Restartable: true, Required: true},
		func(context.Context, struct{}) (string, error) { return "done", nil })
	tasks.AddTool(m, &mcp.Tool{Name: "fail"}, again,
		func(context.Context, struct{}) (string, error) { return "", errors.New("it broke") })
	tasks.AddTool(m, &mcp.Tool{Name: "refuse"}, again,
		func(context.Context, struct{}) (string, error) { return "", mcp.Errorf(-32050, "not today") })
	sleeping := &tasks.ToolOptions{Restartable: true, Required: true}
	tasks.AddTool(m, &mcp.Tool{Name: "sleep"}, sleeping, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 0, "asleep")
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	tasks.AddTool(m, &mcp.Tool{Name: "ask"}, again, func(ctx context.Context, _ struct{}) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Are you sure? "+hostile, nil)
		if err != nil || !sure {
			return "no", told(err)
		}
		return "yes", nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "ask_two"}, again, func(ctx context.Context, _ struct{}) (string, error) {
		var a, b string
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "First?", &a, nil), mcp.FormQuestion("b", "Second?", &b, nil))
		return a + b, told(err)
	})
	tasks.AddTool(m, &mcp.Tool{Name: "think"}, again, func(ctx context.Context, _ struct{}) (string, error) {
		r, err := mcp.Sample(ctx, "model",
			&mcp.CreateMessageParams{MaxTokens: 9,
				Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser,
					Content: []mcp.ContentBlock{mcp.Text("How is the weather?")}}}})
		if err != nil {
			return "", told(err)
		}
		return r.Model + " says " + r.Text(), nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "page"}, again, func(ctx context.Context, _ struct{}) (string, error) {
		return "went", told(mcp.AskURL(ctx, "page", "https://example.com/a", "Please sign in"))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) { return "plain", nil })
	return s, m
}

// A place is a target with tasks, and the revision to use.
type place struct {
	t      *testing.T
	target []string // before or after the other arguments
	behind bool
	pinned string
}

// run runs a command.
func (p *place) run(verb string, words ...string) outcome {
	p.t.Helper()
	return patchbay(p.t, "", p.args(verb, words...)...)
}

func (p *place) args(verb string, words ...string) []string {
	args := append(strings.Fields(verb), "--revision", p.pinned)
	if p.behind {
		return append(append(args, words...), p.target...)
	}
	return append(append(args, p.target...), words...)
}

// wants runs a command and checks its exit code and parts of its output.
func (p *place) wants(status int, stdout, stderr string, verb string, words ...string) outcome {
	p.t.Helper()
	o := p.run(verb, words...)
	if o.status != status || !strings.Contains(o.stdout, stdout) || !strings.Contains(o.stderr, stderr) {
		p.t.Errorf("%s %q ends with %d, %q, %q, want %d, %q, %q", verb, words, o.status, o.stdout, o.stderr,
			status, stdout, stderr)
	}
	return o
}

// start starts a task and returns its id.
func (p *place) start(tool string, words ...string) string {
	p.t.Helper()
	o := p.wants(exitOK, "\n", "Started. To wait for the result: patchbay task watch ", "call --task",
		append([]string{tool}, words...)...)
	return strings.TrimSpace(o.stdout)
}

// becomes watches a task until it has a status.
func (p *place) becomes(id, status string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	seen := &trigger{when: status, then: cancel}
	Run(ctx, p.args("task watch", id), strings.NewReader(""), io.Discard, seen)
	if !strings.Contains(seen.seen, status) {
		p.t.Fatalf("the task does not become %s: %s", status, seen.seen)
	}
}

func (p *place) isModern() bool { return p.pinned == newestRevision() }

// everywhere runs a test over HTTP and stdio, in both revisions with tasks.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{newestRevision(), "2025-11-25"} {
		t.Run("HTTP "+revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			freshState(t)
			s, m := newTaskServer(tasks.NewMemory())
			t.Cleanup(func() {
				if err := m.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			test(t, &place{t, []string{listen(t, s)}, false, revision})
		})
		t.Run("stdio "+revision, func(t *testing.T) {
			freshState(t)
			file := filepath.Join(t.TempDir(), "tasks.db")
			// With the race detector each process waits for a second before it exits.
			test(t, &place{t, []string{"--env", taskStoreEnv + "=" + file, "--env", "GORACE=atexit_sleep_ms=0",
				"--", self}, true, revision})
		})
	}
}

func TestTaskIsStartedAndWatched(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("add", "A=40", "B=2")
		if id == "" || strings.ContainsAny(id, " \n") {
			t.Fatalf("the id is %q", id)
		}
		o := p.wants(exitOK, "42\n", "completed\n", "task watch", id)
		if o.stdout != "42\n" {
			t.Errorf("watch prints %q", o.stdout)
		}
		p.wants(exitOK, "status   completed\n", "", "task get", id)
		p.wants(exitOK, id+"  add  completed\n", "", "task list")
		p.wants(exitOK, "tool     add\n", "", "task get", id)
		var got taskReport
		o = p.wants(exitOK, "", "", "task get", "--json", id)
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.ID != id ||
			got.Status != tasks.StatusCompleted || !strings.Contains(string(got.Result), "42") {
			t.Errorf("JSON is %s, %v", o.stdout, err)
		}
		o = p.wants(exitOK, "", "", "task watch", "--json", id)
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		if !strings.HasPrefix(lines[0], `{"task":{"id":"`+id) ||
			!strings.Contains(lines[len(lines)-1], `"content":[{"type":"text","text":"42"}]`) {
			t.Errorf("JSON is %s", o.stdout)
		}
		if o = patchbay(t, "", "task", "list"); o.status != exitOK || !strings.HasPrefix(o.stdout, id+"  add  ") {
			t.Errorf("what was started here is %q, %q", o.stdout, o.stderr)
		}
		p.wants(exitOK, "done", "completed", "task watch", p.start("must"))
	})
}

func TestTaskFails(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.wants(exitTool, "", "it broke", "task watch", p.start("fail"))
		p.wants(exitTool, `"isError":true`, "", "task watch", "--json", p.start("fail"))
		refused := p.start("refuse")
		p.wants(exitFailure, "", "not today (code -32050)", "task watch", refused)
		p.wants(exitOK, "status   failed", "", "task get", refused)
	})
}

func TestCallThatBecomesATask(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.wants(exitOK, "3\n", "", "call", "add", "A=1", "B=2")
		p.wants(exitOK, "done\n", "", "call", "must")
		p.wants(exitTool, "", "it broke", "call", "fail")
		p.wants(exitFailure, "", "-32050", "call", "refuse")
		p.wants(exitOK, "plain\n", "at once, without a task", "call --task", "plain")
		answers := filepath.Join(t.TempDir(), "answers.json")
		if err := os.WriteFile(answers, []byte(`{"elicitation": [{"message": "sure", "content": {"value": true}}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		p.wants(exitOK, "yes\n", "answered from", "call", "--answers", answers, "ask")
		all, err := notes()
		if err != nil || len(all) != 0 {
			t.Errorf("of tasks that were waited for %d are remembered, %v", len(all), err)
		}
	})
}

func TestTaskIsCancelled(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("sleep")
		p.becomes(id, "working")
		p.wants(exitOK, "status   cancelled", "", "task cancel", id)
		p.wants(exitFailure, "", "cancelled", "task watch", id)
		if p.isModern() {
			p.wants(exitOK, "status   cancelled", "", "task cancel", id)
		} else {
			p.wants(exitFailure, "status   cancelled", "-32602", "task cancel", id)
		}
	})
}

func TestTaskIsAnswered(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("ask")
		p.becomes(id, "input_required")
		if p.isModern() {
			p.wants(exitOK, "task answer", "", "task get", id)
			p.wants(exitOK, "value=boolean", "", "task get", id)
		} else {
			p.wants(exitOK, "asks     (this server does not show the question", "", "task get", id)
		}
		p.wants(exitUsage, "", "task", "task answer", id)
		p.wants(exitUsage, "", "want true or false", "task answer", id, "value=perhaps")
		p.wants(exitUsage, "", `unknown field "sure"`, "task answer", id, "sure=true", "value=true")
		p.wants(exitUsage, "", "--action", "task answer", id, "--action", "maybe")
		p.becomes(id, "input_required")
		p.wants(exitOK, "", "Answered.", "task answer", id, "value=true")
		p.wants(exitOK, "yes\n", "", "task watch", id)
		p.wants(exitFailure, "", "the task has ended", "task answer", id, "value=true")

		id = p.start("ask")
		p.becomes(id, "input_required")
		p.wants(exitOK, "", "Answered.", "task answer", id, `{"value": false}`)
		p.wants(exitOK, "no\n", "", "task watch", id)

		id = p.start("ask")
		p.becomes(id, "input_required")
		o := p.wants(exitOK, `"id":"`+id, "", "task answer", "--json", id, "--action", "decline")
		if o.stderr != "" {
			t.Errorf("got %q", o.stderr)
		}
		p.wants(exitTool, "", "declined", "task watch", id)
	})
}

func TestTaskAsksForSamplingAndPages(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("think")
		p.becomes(id, "input_required")
		p.wants(exitUsage, "", "text", "task answer", id, "model=m")
		p.wants(exitOK, "", "Answered.", "task answer", id, "text=It rains.", "model=crystal-ball")
		p.wants(exitOK, "crystal-ball says It rains.\n", "", "task watch", id)

		id = p.start("page")
		p.becomes(id, "input_required")
		if p.isModern() {
			p.wants(exitOK, "https://example.com/a", "", "task get", id)
		}
		p.wants(exitUsage, "", "missing --action: open https:", "task answer", id, "x=y")
		p.wants(exitOK, "", "Answered.", "task answer", id, "--action", "accept")
		p.wants(exitOK, "went\n", "", "task watch", id)
	})
}

// Several questions can be answered one after another.
func TestTaskWithTwoQuestions(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("ask_two")
		p.becomes(id, "input_required")
		if !p.isModern() { // the questions are not shown
			p.wants(exitOK, "", "Answered.", "task answer", id, "--question", "First", "value=1")
			p.wants(exitOK, "status   input_required", "", "task get", id)
			p.wants(exitOK, "", "Answered.", "task answer", id, "value=2")
			p.wants(exitOK, "12\n", "", "task watch", id)
			return
		}
		o := p.wants(exitUsage, "", "the task has 2 questions", "task answer", id, "value=x")
		if !strings.Contains(o.stderr, "First?") || !strings.Contains(o.stderr, "--question") {
			t.Errorf("stderr does not say how: %s", o.stderr)
		}
		p.wants(exitUsage, "", "want one of ", "task answer", id, "--question", "nothing-like-it", "value=x")
		var got taskReport
		o = p.run("task get", "--json", id)
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.InputRequests) != 2 {
			t.Fatalf("JSON is %s, %v", o.stdout, err)
		}
		for key, q := range got.InputRequests {
			value := "value=1"
			if strings.Contains(string(q.Params), "Second?") {
				value = "value=2"
			}
			p.wants(exitOK, "", "Answered.", "task answer", id, "--question", key, value)
		}
		p.wants(exitOK, "12\n", "", "task watch", id)

		id = p.start("ask_two")
		p.becomes(id, "input_required")
		answers := filepath.Join(t.TempDir(), "answers.json")
		if err := os.WriteFile(answers, []byte(`{"elicitation": [{"message": "First", "content": {"value": "a"}}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		p.wants(exitOK, "", "left open: Second?", "task answer", id, "--answers", answers)
		o = p.wants(exitOK, "Second?", "", "task get", id)
		if strings.Contains(o.stdout, "First?") {
			t.Errorf("what was answered is asked still: %s", o.stdout)
		}
		p.wants(exitUsage, "", "no question was answered", "task answer", id, "--answers", answers)
		p.wants(exitOK, "", "Answered.", "task answer", id, "value=b")
		p.wants(exitOK, "ab\n", "", "task watch", id)
	})
}

func TestTaskIsUnknown(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, verb := range []string{"task get", "task watch", "task answer", "task cancel"} {
			p.wants(exitNotFound, "", "unknown task", verb, "NOSUCHTASK")
		}
		p.wants(exitNotFound, `"kind":"not_found"`, "", "task get", "--json", "NOSUCHTASK")
		p.wants(exitUsage, "", "wrong number of arguments", "task get")
		p.wants(exitOK, "", "No tasks", "task list")
		p.wants(exitOK, `{"tasks":[]}`, "", "task list", "--json")
	})
	freshState(t)
	s, _ := newTaskServer(tasks.NewMemory())
	at := &target{url: listen(t, s)}
	if err := (&note{Key: at.key(), ID: "GONE", Tool: "x", Started: time.Now()}).save(); err != nil {
		t.Fatal(err)
	}
	if o := patchbay(t, "", "task", "list", at.url); o.status != exitOK || strings.Contains(o.stdout, "GONE") ||
		len(noted(t, at)) > 0 {
		t.Errorf("what the server has forgotten is listed or remembered: %d, %q, %q", o.status, o.stdout, o.stderr)
	}
	url := listen(t, newOddServer())
	for _, revision := range []string{newestRevision(), "2025-11-25", "2024-11-05"} {
		if o := patchbay(t, "", "task", "get", "--revision", revision, url, "x"); o.status != exitNotFound ||
			!strings.Contains(o.stderr, "does not support tasks") {
			t.Errorf("%s: a server without tasks: %d, %s", revision, o.status, o.stderr)
		}
		if o := patchbay(t, "", "call", "--task", "--revision", revision, url, "say"); o.status != exitOK ||
			!strings.Contains(o.stderr, "at once, without a task") {
			t.Errorf("%s: a server without tasks: %d, %s", revision, o.status, o.stderr)
		}
	}
}

// task watch prompts on a terminal.
func TestTaskWatchOnATerminal(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("ask")
		p.becomes(id, "input_required")
		o := atTerminal(t, "y\n\n", nil, p.args("task watch", id)...)
		if o.status != exitOK || o.stdout != "yes\n" || !strings.Contains(o.stderr, "Are you sure?") ||
			strings.Contains(o.stderr, "\x1b[31m") {
			t.Errorf("got %d, %q, %q", o.status, o.stdout, o.stderr)
		}
		if p.isModern() {
			id = p.start("ask")
			p.becomes(id, "input_required")
			o = atTerminal(t, "n\n\n", nil, p.args("task answer", id)...)
			if o.status != exitOK || !strings.Contains(o.stderr, "Answered.") {
				t.Errorf("got %d, %q, %q", o.status, o.stdout, o.stderr)
			}
			p.wants(exitOK, "no\n", "", "task watch", id)
		}
	})
}

// Without a terminal, task watch shows questions and leaves them open. An interrupt does not cancel
// the task.
func TestTaskWatchWithoutATerminal(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		id := p.start("ask")
		p.becomes(id, "input_required")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var stdout bytes.Buffer
		seen := &trigger{when: "input_required", then: cancel}
		status := Run(ctx, p.args("task watch", id), strings.NewReader(""), &stdout, seen)
		if status != exitInterrupted || stdout.Len() > 0 || !strings.Contains(seen.seen, "The task continues.") {
			t.Errorf("got %d, %q, %q", status, &stdout, seen.seen)
		}
		p.becomes(id, "input_required")
	})
}
