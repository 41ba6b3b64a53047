package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A responder answers the nth request of its method, from 0.
type responder func(req *mcp.Request, n int) (string, error)

// A fakeServer is a server whose responses the test sets. It records its requests.
type fakeServer struct {
	responses    map[string]responder
	capabilities string // default: those of the extension
	intercept    func(ctx context.Context, req *mcp.Request) error

	mu    sync.Mutex
	count map[string]int
	lines []string // one for each request
	times []time.Time
}

func (s *fakeServer) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "server/discover" {
		caps := s.capabilities
		if caps == "" {
			caps = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
		}
		versions, _ := json.Marshal(mcptest.Revisions())
		return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","supportedVersions":%s,"capabilities":%s}`,
			versions, caps)), nil
	}
	s.mu.Lock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	n := s.count[req.Method]
	s.count[req.Method]++
	s.lines = append(s.lines, line(req))
	s.times = append(s.times, time.Now())
	s.mu.Unlock()
	if s.intercept != nil {
		if err := s.intercept(ctx, req); err != nil {
			return nil, err
		}
	}
	f := s.responses[req.Method]
	if f == nil {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found")
	}
	raw, err := f(req, n)
	if err != nil {
		return nil, err
	}
	return mcp.RawResult(raw), nil
}

// line describes a request in one line.
func line(req *mcp.Request) string {
	var p struct {
		Name           string
		TaskID         string `json:"taskId"`
		Task           json.RawMessage
		InputResponses json.RawMessage `json:"inputResponses"`
		RequestState   string          `json:"requestState"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil {
		return err.Error()
	}
	parts := []string{req.Method, p.Name, p.TaskID, string(p.Task), string(p.InputResponses), p.RequestState}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func (s *fakeServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// requestTimes returns the times of the requests whose line has the prefix, since the first
// request.
func (s *fakeServer) requestTimes(method string) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.lines {
		if strings.HasPrefix(l, method) {
			at = append(at, s.times[i].Sub(s.times[0]))
		}
	}
	return at
}

func (s *fakeServer) wantRequests(t *testing.T, want ...string) {
	t.Helper()
	if got := s.requests(); !slices.Equal(got, want) {
		t.Errorf("requests\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// always returns the same response each time.
func always(raw string) responder { return func(*mcp.Request, int) (string, error) { return raw, nil } }

// inOrder returns the responses in order, and then repeats the last.
func inOrder(raws ...string) responder {
	return func(_ *mcp.Request, n int) (string, error) { return raws[min(n, len(raws)-1)], nil }
}

func failWith(code int, message string) responder {
	return func(*mcp.Request, int) (string, error) { return "", mcp.Errorf(code, "%s", message) }
}

const times = `"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06.5Z"`

// createdTask returns a result that creates a task. more has further members.
func createdTask(more string) string {
	return `{"resultType":"task","taskId":"t1","status":"working",` + times + `,"ttlMs":null` + more + `}`
}

// taskState returns a result of tasks/get. more has further members.
func taskState(status, more string) string {
	return `{"resultType":"complete","taskId":"t1","status":"` + status + `",` + times + `,"ttlMs":null` + more + `}`
}

const helloResult = `,"result":{"content":[{"type":"text","text":"hello"}]}`

// form is an elicitation with one text field.
func form(message string) string {
	return `{"method":"elicitation/create","params":{"mode":"form","message":"` + message +
		`","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
}

// runWithServer runs a test with a client of the server, in a synctest bubble.
func runWithServer(t *testing.T, s *fakeServer, opts *mcp.ClientOptions, o *tasks.ClientOptions,
	test func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	runWithServerOn(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, opts, o, test)
}

func runWithServerOn(t *testing.T, s *fakeServer, on mcptest.Combination, opts *mcp.ClientOptions,
	o *tasks.ClientOptions, test func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, mcptest.Dial(t, s, on, tasks.Declare(opts, o)))
	})
}

// answerForms returns options that answer elicitations and record them.
func answerForms(asked *[]string) *mcp.ClientOptions {
	var mu sync.Mutex
	return &mcp.ClientOptions{Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		mu.Lock()
		defer mu.Unlock()
		*asked = append(*asked, p.Message)
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"` + p.Message +
			`!"}`)}, nil
	}}
}

func wantText(t *testing.T, r *mcp.CallToolResult, err error, want string) {
	t.Helper()
	if err != nil || r.Text() != want {
		t.Errorf("got %+v, %v; want %q", r, err, want)
	}
}

func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, mcp.ErrInvalidResult) {
		t.Errorf("got %v, want an invalid result", err)
	}
}
