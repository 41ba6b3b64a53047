package root

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The progress message has no total, so that it is shown without numbers.
func TestInterruptedCallCancelsItsTask(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := &trigger{when: "progress: asleep\n", then: cancel}
		timeout := time.AfterFunc(time.Minute, cancel)
		defer timeout.Stop()
		var stdout bytes.Buffer
		status := Run(ctx, p.args("call", "sleep"), strings.NewReader(""), &stdout, seen)
		if status != exit.Interrupted || !strings.HasSuffix(seen.text(),
			"progress: asleep\npatchbay: interrupted; the task was cancelled\n") {
			t.Errorf("got %d, %q, want %d and a message about the task", status, seen.text(), exit.Interrupted)
		}
		if all, err := target.Notes(); err != nil || len(all) != 0 {
			t.Errorf("%d notes of cancelled tasks, %v, want none", len(all), err)
		}
	})
}

func TestFailedCancellationIsReportedAfterAnInterrupt(t *testing.T) {
	freshState(t)
	server := &fakeTaskServer{id: "STUBBORN", cancel: mcp.Errorf(mcp.CodeInternalError, "no"),
		get: func(int, string) (string, string, error) {
			return "working", `,"statusMessage":"asleep"`, nil
		}}
	url := listenHTTP(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	timeout := time.AfterFunc(time.Minute, cancel)
	defer timeout.Stop()
	var stdout bytes.Buffer
	status := Run(ctx, []string{"call", "--json", url, "x"}, strings.NewReader(""), &stdout,
		&trigger{when: "asleep", then: cancel})
	want := `"message":"interrupted; the task could not be cancelled and may go on: patchbay task get ` + url +
		` STUBBORN"`
	if status != exit.Interrupted || !strings.Contains(stdout.String(), want) {
		t.Errorf("got %d, %s, want %d, %s", status, &stdout, exit.Interrupted, want)
	}
	if ids := noteIDs(t, &target.Target{URL: url}); len(ids) != 1 || ids[0] != "STUBBORN" {
		t.Errorf("notes %q, want STUBBORN", ids)
	}
}

func TestTaskCancelledByAnotherClientIsReportedWithItsReason(t *testing.T) {
	freshState(t)
	for why, want := range map[string]string{
		"":                          "patchbay: the task was cancelled\n",
		`,"statusMessage":"by Ann"`: "patchbay: the task was cancelled: by Ann\n",
	} {
		server := &fakeTaskServer{id: "T", get: func(n int, _ string) (string, string, error) {
			if n == 0 {
				return "working", "", nil
			}
			return "cancelled", why, nil
		}}
		for _, args := range [][]string{{"call", listenHTTP(t, server), "x"}, {"task", "watch", listenHTTP(t, server), "T"}} {
			server.reset()
			o := atTerminal(t, "", nil, args...)
			if o.status != exit.Failure || !strings.HasSuffix(o.stderr, want) {
				t.Errorf("%q: got %d, %q, want %q", args, o.status, o.stderr, want)
			}
		}
	}
}

func TestCommandsAreSuggestedForAQuestionThatIsNotShown(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		if p.isModern() {
			return // the question is shown
		}
		id := p.start("ask")
		p.waitForStatus(id, "  it asks a question, which this server does not show")
		p.waitForStatus(id, "patchbay task answer ")
		p.check(exit.OK, "patchbay task watch ", "", "task get", id)
		p.check(exit.OK, "patchbay task answer ", "", "task get", id)
		p.check(exit.OK, "FIELD=VALUE…", "", "task get", id)
	})
}

func TestUnknownFieldIsReportedFirst(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		id := p.start("ask")
		p.waitForStatus(id, "input_required")
		p.check(exit.Usage, "", "unknown field \"nope\": want value\nmissing field value: ", "task answer", id, "nope=1")
	})
}

func TestTaskWatchPrintsTheResultOnce(t *testing.T) {
	forEachTransport(t, func(t *testing.T, p *taskClient) {
		o := p.check(exit.OK, "", "", "task watch", "--json", p.start("add", "A=40", "B=2"))
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		for i, line := range lines {
			if last := i == len(lines)-1; strings.Contains(line, "content") != last ||
				strings.HasPrefix(line, `{"task"`) == last {
				t.Errorf("line %d of %d: %s, want the result in the last line only", i+1, len(lines), line)
			}
		}
	})
}

func TestTasksIsAnAliasOfTask(t *testing.T) {
	freshState(t)
	if o := patchbay(t, "", "tasks", "list", "--json"); o.status != exit.OK || o.stdout != "{\"tasks\":[]}\n" {
		t.Errorf("tasks list: got %d, %q, %q, want %d and no tasks", o.status, o.stdout, o.stderr, exit.OK)
	}
	if o := patchbay(t, "", "help", "tasks", "watch"); o.status != exit.OK ||
		!strings.Contains(o.stdout, "patchbay task watch TARGET") {
		t.Errorf("help tasks watch: got %d, %q, %q, want %d and the usage", o.status, o.stdout, o.stderr, exit.OK)
	}
}

// Arguments may be secret and are not shown.
func TestTargetsOfTheSameNameAreShownWithTheirKey(t *testing.T) {
	freshState(t)
	here := t.TempDir()
	one := &target.Target{Command: []string{"pb", "--token=secret", "a"}, Directory: here}
	two := &target.Target{Command: []string{"pb", "--token=secret", "b"}, Directory: here}
	other := &target.Target{Command: []string{"alone"}, Directory: here}
	for id, at := range map[string]*target.Target{"A": one, "B": two, "C": other} {
		n := &target.Note{Key: at.Key(), Target: at.Public(), ID: id, Tool: "x", Started: time.Now()}
		if err := n.Save(); err != nil {
			t.Fatal(err)
		}
	}
	o := patchbay(t, "", "task", "list")
	for _, want := range []string{
		"A  x  pb … (" + one.Key()[:6] + ")\n", "B  x  pb … (" + two.Key()[:6] + ")\n", "C  x  alone\n",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("standard output %q, want %q in it", o.stdout, want)
		}
	}
	if strings.Contains(o.stdout, "secret") {
		t.Errorf("standard output contains an argument: %q", o.stdout)
	}
	o = patchbay(t, "", "task", "list", "--json")
	var got struct{ Tasks []struct{ ID, Key string } }
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got.Tasks) != 3 || got.Tasks[0].Key == "" {
		t.Errorf("task list --json: got %s, %v, want 3 tasks with keys", o.stdout, err)
	}
}

func TestTargetBehindTheToolIsReported(t *testing.T) {
	freshState(t)
	url := listenHTTP(t, newServer("demo"))
	o := patchbay(t, "", "call", "add", "a=1", url)
	if o.status != exit.Usage || !strings.Contains(o.stderr, `unknown server "add"`) ||
		!strings.Contains(o.stderr, "the target comes first: did you mean "+url+"?\n") {
		t.Errorf("got %d, %q, want %d and a suggestion", o.status, o.stderr, exit.Usage)
	}
	if o = patchbay(t, "", "call", "add", "a=1"); strings.Contains(o.stderr, "comes first") {
		t.Errorf("without a URL: %q, want no suggestion", o.stderr)
	}
}
