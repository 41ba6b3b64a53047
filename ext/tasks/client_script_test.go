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

// A step answers the nth request of its method, from 0.
type step func(req *mcp.Request, n int) (string, error)

// A script is a server with scripted responses.
type script struct {
	on           map[string]step
	capabilities string // default: those of the extension
	waits        func(ctx context.Context, req *mcp.Request) error

	mu    sync.Mutex
	count map[string]int
	lines []string // of what was asked: method, and what it was about
	times []time.Time
}

func (s *script) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
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
	if s.waits != nil {
		if err := s.waits(ctx, req); err != nil {
			return nil, err
		}
	}
	f := s.on[req.Method]
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

func (s *script) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// saidAt returns the times of the requests whose line has the prefix, since the first request.
func (s *script) saidAt(method string) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.lines {
		if strings.HasPrefix(l, method) {
			at = append(at, s.times[i].Sub(s.times[0]))
		}
	}
	return at
}

func (s *script) wantSaid(t *testing.T, want ...string) {
	t.Helper()
	if got := s.said(); !slices.Equal(got, want) {
		t.Errorf("the client said\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// always returns the same response each time.
func always(raw string) step { return func(*mcp.Request, int) (string, error) { return raw, nil } }

// inTurn returns the responses in order, and then repeats the last.
func inTurn(raws ...string) step {
	return func(_ *mcp.Request, n int) (string, error) { return raws[min(n, len(raws)-1)], nil }
}

func failing(code int, message string) step {
	return func(*mcp.Request, int) (string, error) { return "", mcp.Errorf(code, "%s", message) }
}

const times = `"createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:06.5Z"`

// created is the result that creates a task, and seen one of tasks/get; more has further members.
func created(more string) string {
	return `{"resultType":"task","taskId":"t1","status":"working",` + times + `,"ttlMs":null` + more + `}`
}

func seen(status, more string) string {
	return `{"resultType":"complete","taskId":"t1","status":"` + status + `",` + times + `,"ttlMs":null` + more + `}`
}

const hello = `,"result":{"content":[{"type":"text","text":"hello"}]}`

// form is an elicitation with one text field.
func form(message string) string {
	return `{"method":"elicitation/create","params":{"mode":"form","message":"` + message +
		`","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
}

// onScript runs a test with a client of the script, in a synctest bubble.
func onScript(t *testing.T, s *script, opts *mcp.ClientOptions, o *tasks.ClientOptions,
	test func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	onScriptAt(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, opts, o, test)
}

func onScriptAt(t *testing.T, s *script, on mcptest.Combination, opts *mcp.ClientOptions, o *tasks.ClientOptions,
	test func(t *testing.T, c *mcp.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, mcptest.Dial(t, s, on, tasks.Declare(opts, o)))
	})
}

// answering returns options that answer elicitations and record them.
func answering(asked *[]string) *mcp.ClientOptions {
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
