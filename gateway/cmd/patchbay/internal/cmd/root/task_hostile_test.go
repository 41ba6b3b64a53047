package root

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A fakeTaskServer is a server with one task whose states the test chooses.
type fakeTaskServer struct {
	id  string
	get func(n int, id string) (status, more string, err error) // the nth result, from 0; nil for a completed task

	cancel error // the error of tasks/cancel

	mu        sync.Mutex
	requests  []string // methods with the task id
	responses string   // the last input responses
}

const completedResult = `,"result":{"content":[{"type":"text","text":"hello"}]}`

func (s *fakeTaskServer) ServeMCP(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	var params struct {
		TaskID  string          `json:"taskId"`
		Answers json.RawMessage `json:"inputResponses"`
	}
	if err := json.Unmarshal(req.Params, &params); err != nil {
		return nil, err
	}
	s.mu.Lock()
	n := 0
	for _, line := range s.requests {
		if strings.HasPrefix(line, req.Method+" ") {
			n++
		}
	}
	s.requests = append(s.requests, req.Method+" "+params.TaskID)
	if params.Answers != nil {
		s.responses = string(params.Answers)
	}
	s.mu.Unlock()
	switch req.Method {
	case "server/discover":
		return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
			`"extensions":{"io.modelcontextprotocol/tasks":{}}}}`), nil
	case "tools/list":
		return mcp.RawResult(`{"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
			`"tools":[{"name":"x","inputSchema":{"type":"object"}}]}`), nil
	case "tools/call":
		return taskJSON("task", s.id, "working", ""), nil
	case "tasks/cancel":
		if s.cancel != nil {
			return nil, s.cancel
		}
		return mcp.RawResult(`{"resultType":"complete"}`), nil
	case "tasks/update":
		return mcp.RawResult(`{"resultType":"complete"}`), nil
	case "tasks/get":
		if s.get == nil {
			return taskJSON("complete", params.TaskID, "completed", completedResult), nil
		}
		status, more, err := s.get(n, params.TaskID)
		if err != nil {
			return nil, err
		}
		return taskJSON("complete", params.TaskID, status, more), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found")
}

func taskJSON(kind, id, status, more string) mcp.RawResult {
	name, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return mcp.RawResult(fmt.Sprintf(`{"resultType":%q,"taskId":%s,"status":%q,"createdAt":"2026-01-02T03:04:05Z",`+
		`"lastUpdatedAt":"2026-01-02T03:04:06Z","ttlMs":null%s}`, kind, name, status, more))
}

// reset forgets the requests.
func (s *fakeTaskServer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

func (s *fakeTaskServer) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.requests {
		if strings.HasPrefix(line, method+" ") {
			n++
		}
	}
	return n
}

// oneForm returns an input request with the properties of a form.
func oneForm(properties string) string {
	return `,"inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form","message":"who?",` +
		`"requestedSchema":{"type":"object","properties":` + properties + `}}}}`
}

// The final state of a task is not requested a second time: the server could then block or ask a
// question.
func TestFinalTaskStateIsNotRequestedAgain(t *testing.T) {
	for name, next := range map[string][2]string{"working": {"working", ""},
		"input_required": {"input_required", oneForm(`{"name":{"type":"string"}}`)}} {
		for _, verb := range []string{"get", "cancel", "watch"} {
			t.Run(verb+", then "+name, func(t *testing.T) {
				freshState(t)
				s := &fakeTaskServer{get: func(n int, _ string) (string, string, error) {
					if n == 0 {
						return "completed", completedResult, nil
					}
					return next[0], next[1], nil
				}}
				url := listenHTTP(t, s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var stdout, stderr strings.Builder
				status := Run(ctx, []string{"task", verb, url, "t1"}, strings.NewReader(""), &stdout, &stderr)
				if status != exit.OK || !strings.Contains(stdout.String(), "hello\n") {
					t.Errorf("got %d, %q, %q, want %d, hello", status, &stdout, &stderr, exit.OK)
				}
				if gets, updates := s.count("tasks/get"), s.count("tasks/update"); gets != 1 || updates != 0 {
					t.Errorf("%d tasks/get and %d tasks/update were sent, want 1 and 0", gets, updates)
				}
			})
		}
	}
}

// The error of a task may have the code of an unknown task.
func TestErrorOfATaskKeepsItsCodeAndMessage(t *testing.T) {
	freshState(t)
	url := listenHTTP(t, &fakeTaskServer{get: func(int, string) (string, string, error) {
		return "failed", `,"error":{"code":-32602,"message":"seven does not name a color"}`, nil
	}})
	for name, o := range map[string]outcome{
		"without a terminal": patchbay(t, "", "task", "watch", url, "t1"),
		"at a terminal":      atTerminal(t, "", nil, "task", "watch", url, "t1"),
	} {
		if o.status != exit.Failure || !strings.Contains(o.stderr, "seven does not name a color") ||
			strings.Contains(o.stderr, "no task") {
			t.Errorf("%s: got %d, %q, %q, want %d and the message", name, o.status, o.stdout, o.stderr, exit.Failure)
		}
	}
	url = listenHTTP(t, &fakeTaskServer{get: func(n int, _ string) (string, string, error) {
		if n < 2 {
			return "working", "", nil
		}
		return "failed", `,"error":{"code":-32602,"message":"seven does not name a color"}`, nil
	}})
	if o := atTerminal(t, "", nil, "task", "watch", url, "t1"); o.status != exit.Failure ||
		strings.Contains(o.stderr, "no task") {
		t.Errorf("after two polls: got %d, %q, %q, want %d", o.status, o.stdout, o.stderr, exit.Failure)
	}
	url = listenHTTP(t, &fakeTaskServer{get: func(int, string) (string, string, error) {
		return "completed", `,"result":{"content":7}`, nil
	}})
	if o := patchbay(t, "", "task", "get", url, "t1"); o.status != exit.Protocol {
		t.Errorf("an invalid result: got %d, %q, %q, want %d", o.status, o.stdout, o.stderr, exit.Protocol)
	}
}

// A task id can be any text. The suggested command is safe on a terminal and has exactly this id.
func TestSuggestedCommandsQuoteTaskIDs(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Log("bash not found: the suggested commands are not run")
	}
	for _, id := range []string{
		"t\x1b]0;pwned\x07\x1b[31mRED\x1b[2J\u202egnp", "t1\n:0\n--evil", "two  blanks", "  before and after  ",
		"a\u00a0b\u3000c", "it's \\ \t", " ", "t1'$(id)`id`;id", "Größe", "\u200b", "~", "--answers=/etc/passwd",
		"--json", "--", "-", "--id=x", "-v\x1b[31m", "#", "*",
	} {
		t.Run(id, func(t *testing.T) {
			freshState(t)
			s := &fakeTaskServer{id: id}
			url := listenHTTP(t, s)
			o := patchbay(t, "", "call", "--task", url, "x")
			if o.status != exit.OK || o.stderr != term.Clean(o.stderr) || strings.Count(o.stderr, "\n") != 1 {
				t.Fatalf("got %d, %q, want %d and one escaped line", o.status, o.stderr, exit.OK)
			}
			for _, verb := range []string{"get", "watch", "cancel"} {
				if o := patchbay(t, "", "task", verb, url, "--id", id); o.status != exit.OK ||
					!strings.Contains(o.stdout, "hello\n") {
					t.Errorf("%s --id: got %d, %q, %q, want %d, hello", verb, o.status, o.stdout, o.stderr, exit.OK)
				}
			}
			_, line, _ := strings.Cut(strings.TrimSuffix(o.stderr, "\n"), "Started. To wait for the result: ")
			if bash == "" {
				return
			}
			cmd := exec.CommandContext(t.Context(), bash, "-c", `patchbay() { printf '%s\0' "$@"; }; `+line)
			typed, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			s.reset()
			o = patchbay(t, "", strings.Split(strings.TrimSuffix(string(typed), "\x00"), "\x00")...)
			if o.status != exit.OK || o.stdout != "hello\n" || !slices.Contains(s.requests, "tasks/get "+id) {
				t.Errorf("%s\ngot %d, %q, %q, want %d, hello and a tasks/get of the id", line, o.status, o.stdout,
					o.stderr, exit.OK)
			}
		})
	}
}

func TestCompletionsOmitTaskIDsThatNeedQuotes(t *testing.T) {
	freshState(t)
	at := &target.Target{URL: "http://127.0.0.1:1/mcp"}
	for _, id := range []string{"--json", "-x", "good", "two words"} {
		if err := (&target.Note{Key: at.Key(), ID: id, Tool: "x", Started: time.Now()}).Save(); err != nil {
			t.Fatal(err)
		}
	}
	o := patchbay(t, "", "__complete", "task", "get", at.URL, "")
	if !strings.HasPrefix(o.stdout, "good\n:") {
		t.Errorf("completions %q, want good only", o.stdout)
	}
}

// A field whose name has a special meaning on a command line is shown, and answered, as JSON.
func TestTaskFieldsWithSpecialNamesAreJSON(t *testing.T) {
	freshState(t)
	s := &fakeTaskServer{get: func(int, string) (string, string, error) {
		return "input_required", oneForm(`{"--json":{"type":"string"},"@a":{"type":"string"},` +
			`"b=":{"type":"string"},"c:":{"type":"string"},"plain":{"type":"string"}}`), nil
	}}
	url := listenHTTP(t, s)
	o := patchbay(t, "", "task", "get", url, "t1")
	for _, want := range []string{`['{"--json": string}']`, `['{"@a": string}']`, `['{"b=": string}']`,
		`['{"c:": string}']`, `[plain=string]`} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("stdout does not contain %s: %s", want, o.stdout)
		}
	}
	o = patchbay(t, "", "task", "answer", url, "t1", `{"--json": "v"}`, `{"b=": "w"}`, "plain=x")
	if o.status != exit.OK || !strings.Contains(s.responses, `{"--json":"v","b=":"w","plain":"x"}`) {
		t.Errorf("got %d, %q, the server received %s, want %d and three fields", o.status, o.stderr, s.responses, exit.OK)
	}
}

// Long text about a task is shortened.
func TestLongTaskTextIsShortened(t *testing.T) {
	freshState(t)
	long := strings.Repeat(`A\u001b[31m\u202e`, 1<<18)
	for status, more := range map[string]string{
		"working": `,"statusMessage":"` + long + `"`,
		"failed":  `,"error":{"code":-32603,"message":"` + long + `"}`,
		"input_required": `,"inputRequests":{"` + long[:1<<15] +
			`":{"method":"elicitation/create","params":{"mode":"url","elicitationId":"1","message":"m",` +
			`"url":"https://a.example/` + long + `"}}}`,
	} {
		url := listenHTTP(t, &fakeTaskServer{get: func(int, string) (string, string, error) { return status, more, nil }})
		if o := patchbay(t, "", "task", "get", url, "t1"); o.status != exit.OK || len(o.stdout) > 100_000 ||
			!strings.Contains(o.stdout, `A\x1b[31m`) {
			t.Errorf("%s: got %d, %d bytes, %.200q, %.200q, want %d and at most 100000 bytes of escaped text", status,
				o.status, len(o.stdout), o.stdout, o.stderr, exit.OK)
		}
	}
}

func TestTaskListShowsTasksBesideAnError(t *testing.T) {
	freshState(t)
	s := &fakeTaskServer{get: func(_ int, id string) (string, string, error) {
		if id == "bad" {
			return "", "", mcp.Errorf(mcp.CodeInternalError, "the disk is full")
		}
		return "completed", completedResult, nil
	}}
	at := &target.Target{URL: listenHTTP(t, s)}
	for _, id := range []string{"one", "bad", "two"} {
		if err := (&target.Note{Key: at.Key(), ID: id, Tool: "x", Started: time.Now()}).Save(); err != nil {
			t.Fatal(err)
		}
	}
	o := patchbay(t, "", "task", "list", at.URL)
	if o.status != exit.Failure || !strings.Contains(o.stdout, "one  x  completed") ||
		!strings.Contains(o.stdout, "two  x  completed") ||
		!strings.Contains(o.stderr, `task "bad"`) || !strings.Contains(o.stderr, "the disk is full") {
		t.Errorf("got %d, %q, %q, want %d, two tasks and the error", o.status, o.stdout, o.stderr, exit.Failure)
	}
}
