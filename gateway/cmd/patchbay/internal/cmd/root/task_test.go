package root

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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/task"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
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
	restartable := &tasks.ToolOptions{Restartable: true}
	tasks.AddTool(m, &mcp.Tool{Name: "add"}, restartable,
		func(ctx context.Context, in struct{ A, B int }) (int, error) {
			mcp.Progress(ctx, 1, 2, "adding "+hostile)
			return in.A + in.B, nil
		})
	tasks.AddTool(m, &mcp.Tool{Name: "fail"}, restartable,
		func(context.Context, struct{}) (string, error) { return "", errors.New("it broke") })
	tasks.AddTool(m, &mcp.Tool{Name: "refuse"}, restartable,
		func(context.Context, struct{}) (string, error) { return "", mcp.Errorf(4001, "not today") })
	required := &tasks.ToolOptions{Restartable: true, Required: true}
	tasks.AddTool(m, &mcp.Tool{Name: "must"}, required,
		func(context.Context, struct{}) (string, error) { return "done", nil })
	tasks.AddTool(m, &mcp.Tool{Name: "sleep"}, required, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 0, "asleep")
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	tasks.AddTool(m, &mcp.Tool{Name: "ask"}, restartable, func(ctx context.Context, _ struct{}) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Are you sure? "+hostile, nil)
		if err != nil || !sure {
			return "no", toolError(err)
		}
		return "yes", nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "ask_two"}, restartable, func(ctx context.Context, _ struct{}) (string, error) {
		var a, b string
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "First?", &a, nil), mcp.FormQuestion("b", "Second?", &b, nil))
		return a + b, toolError(err)
	})
	tasks.AddTool(m, &mcp.Tool{Name: "think"}, restartable, func(ctx context.Context, _ struct{}) (string, error) {
		question := mcp.SamplingMessage{Role: mcp.RoleUser,
			Content: []mcp.ContentBlock{mcp.Text("How is the weather?")}}
		r, err := mcp.Sample(ctx, "model",
			&mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{question}})
		if err != nil {
			return "", toolError(err)
		}
		return r.Model + " says " + r.Text(), nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "page"}, restartable, func(ctx context.Context, _ struct{}) (string, error) {
		return "went", toolError(mcp.AskURL(ctx, "page", "https://example.com/a", "Please sign in"))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) { return "plain", nil })
	addTick(s)
	return s, m
}

// A taskClient runs commands on a target with tasks, in one revision.
type taskClient struct {
	t          *testing.T
	target     []string // arguments that name the target
	targetLast bool     // whether target follows the other arguments
	revision   string
}

func (p *taskClient) run(verb string, words ...string) outcome {
	p.t.Helper()
	return patchbay(p.t, "", p.args(verb, words...)...)
}

func (p *taskClient) args(verb string, words ...string) []string {
	args := append(strings.Fields(verb), "--revision", p.revision)
	if p.targetLast {
		return append(append(args, words...), p.target...)
	}
	return append(append(args, p.target...), words...)
}

// check runs a command and checks its exit code and parts of its output.
func (p *taskClient) check(status int, stdout, stderr string, verb string, words ...string) outcome {
	p.t.Helper()
	o := p.run(verb, words...)
	if o.status != status || !strings.Contains(o.stdout, stdout) || !strings.Contains(o.stderr, stderr) {
		p.t.Errorf("%s %q: got %d, %q, %q, want %d, %q, %q", verb, words, o.status, o.stdout, o.stderr,
			status, stdout, stderr)
	}
	return o
}

// start starts a task and returns its id.
func (p *taskClient) start(tool string, words ...string) string {
	p.t.Helper()
	o := p.check(exit.OK, "\n", "Started. To wait for the result: patchbay task watch ", "call --task",
		append([]string{tool}, words...)...)
	return strings.TrimSpace(o.stdout)
}

// waitForStatus watches a task until a status, or other text, is shown.
func (p *taskClient) waitForStatus(id, status string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	seen := &trigger{when: status, then: cancel}
	Run(ctx, p.args("task watch", id), strings.NewReader(""), io.Discard, seen)
	if !strings.Contains(seen.text(), status) {
		p.t.Fatalf("task watch did not show %q: %s", status, seen.text())
	}
}

func (p *taskClient) isModern() bool { return p.revision == connect.NewestRevision() }

// forEachTransport runs a test over HTTP and stdio, in both revisions with tasks.
func forEachTransport(t *testing.T, test func(t *testing.T, p *taskClient)) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{connect.NewestRevision(), "2025-11-25"} {
		t.Run("HTTP "+revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			freshState(t)
			s, m := newTaskServer(tasks.NewMemory())
			t.Cleanup(func() {
				if err := m.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			test(t, &taskClient{t, []string{listenHTTP(t, s)}, false, revision})
		})
		t.Run("stdio "+revision, func(t *testing.T) {
			freshState(t)
			file := filepath.Join(t.TempDir(), "tasks.db")
			// With the race detector, each process waits for a second before it exits.
			test(t, &taskClient{t, []string{"--env", taskStoreEnv + "=" + file, "--env", "GORACE=atexit_sleep_ms=0",
				"--", self}, true, revision})
		})
	}
}

func TestTaskIsStartedAndWatched(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("add", "A=40", "B=2")
		if id == "" || strings.ContainsAny(id, " \n") {
			t.Fatalf("task id %q, want a word", id)
		}
		o := p.check(exit.OK, "42\n", "completed\n", "task watch", id)
		if o.stdout != "42\n" {
			t.Errorf("task watch: standard output %q, want 42", o.stdout)
		}
		p.check(exit.OK, "status   completed\n", "", "task get", id)
		p.check(exit.OK, id+"  add  completed\n", "", "task list")
		p.check(exit.OK, "tool     add\n", "", "task get", id)
		var got task.TaskReport
		o = p.check(exit.OK, "", "", "task get", "--json", id)
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.ID != id ||
			got.Status != tasks.StatusCompleted || !strings.Contains(string(got.Result), "42") {
			t.Errorf("task get --json: got %s, %v, want %s, completed, 42", o.stdout, err, id)
		}
		o = p.check(exit.OK, "", "", "task watch", "--json", id)
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		if !strings.HasPrefix(lines[0], `{"task":{"id":"`+id) ||
			!strings.Contains(lines[len(lines)-1], `"content":[{"type":"text","text":"42"}]`) {
			t.Errorf("task watch --json: got %s, want the task first and its result last", o.stdout)
		}
		if o = patchbay(t, "", "task", "list"); o.status != exit.OK || !strings.HasPrefix(o.stdout, id+"  add  ") {
			t.Errorf("task list without a target: got %q, %q, want the task %s", o.stdout, o.stderr, id)
		}
		p.check(exit.OK, "done", "completed", "task watch", p.start("must"))
	})
}

func TestFailedTaskIsReported(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		p.check(exit.Tool, "", "it broke", "task watch", p.start("fail"))
		p.check(exit.Tool, `"isError":true`, "", "task watch", "--json", p.start("fail"))
		refused := p.start("refuse")
		p.check(exit.Failure, "", "not today (code 4001)", "task watch", refused)
		p.check(exit.OK, "status   failed", "", "task get", refused)
	})
}

func TestCallWaitsForItsTask(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		p.check(exit.OK, "3\n", "", "call", "add", "A=1", "B=2")
		p.check(exit.OK, "done\n", "", "call", "must")
		p.check(exit.Tool, "", "it broke", "call", "fail")
		p.check(exit.Failure, "", "4001", "call", "refuse")
		p.check(exit.OK, "plain\n", "at once, without a task", "call --task", "plain")
		answers := filepath.Join(t.TempDir(), "answers.json")
		writeFile(t, answers, `{"elicitation": [{"message": "sure", "content": {"value": true}}]}`)
		p.check(exit.OK, "yes\n", "answered from", "call", "--answers", answers, "ask")
		all, err := target.Notes()
		if err != nil || len(all) != 0 {
			t.Errorf("%d notes of finished calls, %v, want none", len(all), err)
		}
	})
}

func TestTaskCanBeCancelled(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("sleep")
		p.waitForStatus(id, "working")
		p.check(exit.OK, "status   cancelled", "", "task cancel", id)
		p.check(exit.Failure, "", "cancelled", "task watch", id)
		if p.isModern() {
			p.check(exit.OK, "status   cancelled", "", "task cancel", id)
		} else {
			p.check(exit.Failure, "status   cancelled", "-32602", "task cancel", id)
		}
	})
}

func TestQuestionOfATaskCanBeAnswered(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("ask")
		p.waitForStatus(id, "input_required")
		if p.isModern() {
			p.check(exit.OK, "task answer", "", "task get", id)
			p.check(exit.OK, "value=boolean", "", "task get", id)
		} else {
			p.check(exit.OK, "asks     (this server does not show the question", "", "task get", id)
		}
		p.check(exit.Usage, "", "task", "task answer", id)
		p.check(exit.Usage, "", "want true or false", "task answer", id, "value=perhaps")
		p.check(exit.Usage, "", `unknown field "sure"`, "task answer", id, "sure=true", "value=true")
		p.check(exit.Usage, "", "--action", "task answer", id, "--action", "maybe")
		p.waitForStatus(id, "input_required")
		p.check(exit.OK, "", "Answered.", "task answer", id, "value=true")
		p.check(exit.OK, "yes\n", "", "task watch", id)
		p.check(exit.Failure, "", "the task has ended", "task answer", id, "value=true")

		id = p.start("ask")
		p.waitForStatus(id, "input_required")
		p.check(exit.OK, "", "Answered.", "task answer", id, `{"value": false}`)
		p.check(exit.OK, "no\n", "", "task watch", id)

		id = p.start("ask")
		p.waitForStatus(id, "input_required")
		o := p.check(exit.OK, `"id":"`+id, "", "task answer", "--json", id, "--action", "decline")
		if o.stderr != "" {
			t.Errorf("task answer --json: standard error %q, want nothing", o.stderr)
		}
		p.check(exit.Tool, "", "declined", "task watch", id)
	})
}

func TestSamplingAndPagesOfATaskCanBeAnswered(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("think")
		p.waitForStatus(id, "input_required")
		p.check(exit.Usage, "", "text", "task answer", id, "model=m")
		p.check(exit.OK, "", "Answered.", "task answer", id, "text=It rains.", "model=crystal-ball")
		p.check(exit.OK, "crystal-ball says It rains.\n", "", "task watch", id)

		id = p.start("page")
		p.waitForStatus(id, "input_required")
		if p.isModern() {
			p.check(exit.OK, "https://example.com/a", "", "task get", id)
		}
		p.check(exit.Usage, "", "missing --action: open https:", "task answer", id, "x=y")
		p.check(exit.OK, "", "Answered.", "task answer", id, "--action", "accept")
		p.check(exit.OK, "went\n", "", "task watch", id)
	})
}

func TestQuestionsOfATaskCanBeAnsweredSeparately(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("ask_two")
		p.waitForStatus(id, "input_required")
		if !p.isModern() { // the questions are not shown
			p.check(exit.OK, "", "Answered.", "task answer", id, "--question", "First", "value=1")
			p.check(exit.OK, "status   input_required", "", "task get", id)
			p.check(exit.OK, "", "Answered.", "task answer", id, "value=2")
			p.check(exit.OK, "12\n", "", "task watch", id)
			return
		}
		o := p.check(exit.Usage, "", "the task has 2 questions", "task answer", id, "value=x")
		if !strings.Contains(o.stderr, "First?") || !strings.Contains(o.stderr, "--question") {
			t.Errorf("standard error %s, want the questions and --question", o.stderr)
		}
		p.check(exit.Usage, "", "want one of ", "task answer", id, "--question", "nothing-like-it", "value=x")
		var got task.TaskReport
		o = p.run("task get", "--json", id)
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.InputRequests) != 2 {
			t.Fatalf("task get --json: got %s, %v, want 2 input requests", o.stdout, err)
		}
		for key, q := range got.InputRequests {
			value := "value=1"
			if strings.Contains(string(q.Params), "Second?") {
				value = "value=2"
			}
			p.check(exit.OK, "", "Answered.", "task answer", id, "--question", key, value)
		}
		p.check(exit.OK, "12\n", "", "task watch", id)

		id = p.start("ask_two")
		p.waitForStatus(id, "input_required")
		answers := filepath.Join(t.TempDir(), "answers.json")
		writeFile(t, answers, `{"elicitation": [{"message": "First", "content": {"value": "a"}}]}`)
		p.check(exit.OK, "", "left open: Second?", "task answer", id, "--answers", answers)
		o = p.check(exit.OK, "Second?", "", "task get", id)
		if strings.Contains(o.stdout, "First?") {
			t.Errorf("task get shows a question that was answered: %s", o.stdout)
		}
		p.check(exit.Usage, "", "no question was answered", "task answer", id, "--answers", answers)
		p.check(exit.OK, "", "Answered.", "task answer", id, "value=b")
		p.check(exit.OK, "ab\n", "", "task watch", id)
	})
}

func TestUnknownTaskIsReported(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		for _, verb := range []string{"task get", "task watch", "task answer", "task cancel"} {
			p.check(exit.NotFound, "", "unknown task", verb, "NOSUCHTASK")
		}
		p.check(exit.NotFound, `"kind":"not_found"`, "", "task get", "--json", "NOSUCHTASK")
		p.check(exit.Usage, "", "wrong number of arguments", "task get")
		p.check(exit.OK, "", "No tasks", "task list")
		p.check(exit.OK, `{"tasks":[]}`, "", "task list", "--json")
	})
	freshState(t)
	s, _ := newTaskServer(tasks.NewMemory())
	at := &target.Target{URL: listenHTTP(t, s)}
	if err := (&target.Note{Key: at.Key(), ID: "GONE", Tool: "x", Started: time.Now()}).Save(); err != nil {
		t.Fatal(err)
	}
	if o := patchbay(t, "", "task", "list", at.URL); o.status != exit.OK || strings.Contains(o.stdout, "GONE") ||
		len(noteIDs(t, at)) > 0 {
		t.Errorf("task list with a note of an unknown task: got %d, %q, %q, want %d, no task and no note", o.status,
			o.stdout, o.stderr, exit.OK)
	}
	url := listenHTTP(t, newOddServer())
	for _, revision := range []string{connect.NewestRevision(), "2025-11-25", "2024-11-05"} {
		if o := patchbay(t, "", "task", "get", "--revision", revision, url, "x"); o.status != exit.NotFound ||
			!strings.Contains(o.stderr, "does not support tasks") {
			t.Errorf("%s: task get, server without tasks: got %d, %s, want %d", revision, o.status, o.stderr,
				exit.NotFound)
		}
		if o := patchbay(t, "", "call", "--task", "--revision", revision, url, "say"); o.status != exit.OK ||
			!strings.Contains(o.stderr, "at once, without a task") {
			t.Errorf("%s: call --task, server without tasks: got %d, %s, want %d", revision, o.status, o.stderr, exit.OK)
		}
	}
}

func TestTaskWatchPromptsAtATerminal(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("ask")
		p.waitForStatus(id, "input_required")
		o := atTerminal(t, "y\n\n", nil, p.args("task watch", id)...)
		if o.status != exit.OK || o.stdout != "yes\n" || !strings.Contains(o.stderr, "Are you sure?") ||
			strings.Contains(o.stderr, "\x1b[31m") {
			t.Errorf("task watch: got %d, %q, %q, want %d, yes and the escaped question", o.status, o.stdout, o.stderr,
				exit.OK)
		}
		if p.isModern() {
			id = p.start("ask")
			p.waitForStatus(id, "input_required")
			o = atTerminal(t, "n\n\n", nil, p.args("task answer", id)...)
			if o.status != exit.OK || !strings.Contains(o.stderr, "Answered.") {
				t.Errorf("task answer: got %d, %q, %q, want %d", o.status, o.stdout, o.stderr, exit.OK)
			}
			p.check(exit.OK, "no\n", "", "task watch", id)
		}
	})
}

// An interrupt does not cancel the task.
func TestTaskWatchWithoutATerminalLeavesQuestionsOpen(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("ask")
		p.waitForStatus(id, "input_required")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var stdout bytes.Buffer
		seen := &trigger{when: "input_required", then: cancel}
		status := Run(ctx, p.args("task watch", id), strings.NewReader(""), &stdout, seen)
		if status != exit.Interrupted || stdout.Len() > 0 || !strings.Contains(seen.text(), "The task continues.") {
			t.Errorf("got %d, %q, %q, want %d and a message that the task continues", status, &stdout, seen.text(),
				exit.Interrupted)
		}
		p.waitForStatus(id, "input_required")
	})
}
