package load_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// slice is the duration of a Run in a test, long enough for several calls.
const slice = 20 * time.Millisecond

// A fakeServer responds correctly unless modify is set.
type fakeServer struct {
	calls  atomic.Int64
	modify func(call int64, answer string) string
}

// respond returns the messages for body, of which the last one is the response.
// For a notification it returns nil.
func (f *fakeServer) respond(t *testing.T, body []byte) []string {
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name      string
			Arguments echo.In
			Meta      map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		t.Errorf("request %q: %v", body, err)
	}
	switch req.Method {
	case "initialize":
		return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{}}}`, req.ID)}
	case "tools/call":
		text := req.Params.Arguments.Message
		notes := map[string]int{echo.ProgressTool: 1, echo.NotificationsTool: echo.Notifications}[req.Params.Name]
		switch req.Params.Name {
		case echo.CountTool:
			text = fmt.Sprint(len(text))
		case echo.LargeTool:
			text = echo.Large()
		}
		note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress",`+
			`"params":{"progressToken":%q,"progress":1}}`,
			req.Params.Meta["progressToken"])
		return append(slices.Repeat([]string{note}, notes),
			f.answer(req.ID, fmt.Sprintf(`"content":[{"type":"text","text":%q}]`, text)))
	case "tools/list":
		tools := make([]string, listed)
		for i := range tools {
			tools[i] = fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, echo.ListedTool(i),
				echo.ToolDescription)
		}
		return []string{f.answer(req.ID, `"tools":[`+strings.Join(tools, ",")+`]`)}
	}
	return nil
}

// listed is the number of tools of a fakeServer.
const listed = 50

// answer returns the correct response, as changed by modify.
func (f *fakeServer) answer(id json.RawMessage, result string) string {
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, id, result)
	if n := f.calls.Add(1); f.modify != nil {
		return f.modify(n, answer)
	}
	return answer
}

// handler serves f over HTTP. With sse it responds with event streams. With
// flush it writes each event, and each half of a response, as its own chunk.
func (f *fakeServer) handler(t *testing.T, sse, flush bool) http.Handler {
	var sessions atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		messages := f.respond(t, body)
		if len(messages) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"initialize"`) {
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", sessions.Add(1)))
		}
		for _, m := range messages {
			if sse {
				w.Header().Set("Content-Type", "text/event-stream")
				m = "event: message\ndata: " + m + "\n\n"
			}
			io.WriteString(w, m[:len(m)/2])
			if flush {
				http.NewResponseController(w).Flush()
			}
			io.WriteString(w, m[len(m)/2:])
		}
	})
}

func TestHTTPCountsEveryCall(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for _, kind := range []struct {
			name       string
			call       load.Call
			sse, flush bool
		}{
			{"responses at once", load.Call{Era: era, Tool: echo.Tool}, false, false},
			{"responses in chunks", load.Call{Era: era, Tool: echo.Tool}, false, true},
			{"streams", load.Call{Era: era, Tool: echo.Tool, SSE: true}, true, false},
			{"streams with progress, in chunks", load.Call{Era: era, Tool: echo.ProgressTool, SSE: true}, true, true},
			{"streams of many notifications", load.Call{Era: era, Tool: echo.NotificationsTool, SSE: true}, true,
				false},
			{"lists", load.Call{Era: era, List: listed}, false, false},
			{"large arguments", load.Call{Era: era, Tool: echo.CountTool}, false, false},
			{"large results", load.Call{Era: era, Tool: echo.LargeTool}, false, false},
			{"large results in chunks", load.Call{Era: era, Tool: echo.LargeTool}, false, true},
		} {
			t.Run(string(era)+"/"+kind.name, func(t *testing.T) {
				f := new(fakeServer)
				s := httptest.NewServer(f.handler(t, kind.sse, kind.flush))
				defer s.Close()
				const connections = 3
				h, err := load.DialHTTP(s.URL+"/mcp", connections, kind.call)
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				got, err := h.Run(slice)
				if err != nil {
					t.Fatal(err)
				}
				if want := int(f.calls.Load()) - connections; got.Calls != want || want < connections {
					t.Errorf("counted %d calls, want the %d of the server", got.Calls, want)
				}
				if got.Wall < slice {
					t.Errorf("ran for %v, want at least %v", got.Wall, slice)
				}
			})
		}
	}
}

func TestWrongResponsesAreErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		wrong func(call int64, answer string) string
	}{
		{"first has another text", func(_ int64, a string) string {
			return strings.Replace(a, echo.Message, "other", 1)
		}},
		{"first has another id", func(_ int64, a string) string { return strings.Replace(a, `"id":1`, `"id":2`, 1) }},
		{"first is a tool error", func(_ int64, a string) string {
			return strings.Replace(a, `"content"`, `"isError":true,"content"`, 1)
		}},
		{"first requires input", func(_ int64, a string) string {
			return strings.Replace(a, "complete", "input_required", 1)
		}},
		{"first is truncated", func(_ int64, a string) string { return a[:len(a)-1] }},
		{"a later one has another text", func(n int64, a string) string {
			if n < 3 {
				return a
			}
			return strings.Replace(a, echo.Message, "other", 1)
		}},
		{"a later one has another id", func(n int64, a string) string {
			if n < 3 {
				return a
			}
			return strings.Replace(a, `"id":1`, `"id":2`, 1)
		}},
	} {
		call := load.Call{Era: echo.Modern, Tool: echo.Tool}
		t.Run(test.name+"/HTTP", func(t *testing.T) {
			s := httptest.NewServer((&fakeServer{modify: test.wrong}).handler(t, false, false))
			defer s.Close()
			h, err := load.DialHTTP(s.URL+"/mcp", 1, call)
			if err == nil {
				defer h.Close()
				_, err = h.Run(slice)
			}
			if err == nil { // the second call took all of the slice
				_, err = h.Run(slice)
			}
			if err == nil {
				t.Error("no error for a wrong response, want one")
			}
		})
		t.Run(test.name+"/stdio", func(t *testing.T) {
			s, err := newStdio(t, &fakeServer{modify: test.wrong}, 4, call)
			if err == nil {
				defer s.Close()
				_, err = s.Run(slice)
			}
			if err == nil {
				t.Error("no error for a wrong response, want one")
			}
		})
	}
}

// TestWrongLargeResponsesAreErrors truncates a large response, a list and a
// stream of notifications, in the first response (full check) and in a later
// one (quick check).
func TestWrongLargeResponsesAreErrors(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(a string) string { return strings.Replace(a, old, new, 1) }
	}
	for _, test := range []struct {
		name  string
		call  load.Call
		wrong func(answer string) string
		first bool // only a full check detects it
	}{
		{"another length", load.Call{Tool: echo.CountTool}, replace("1048576", "1048575"), false},
		{"a truncated text", load.Call{Tool: echo.LargeTool}, replace(echo.Large()[100:], ""), false},
		{"a text with another word", load.Call{Tool: echo.LargeTool}, replace("jumps", "leaps"), true},
		{"a list without its last tool", load.Call{List: listed}, replace(`"tool_0049"`, `"tool_0048"`), false},
		{"a list without its first tool", load.Call{List: listed}, replace(`"tool_0000"`, `"tool_0001"`), true},
		{"a shorter list", load.Call{List: listed + 1}, replace("", ""), false},
	} {
		for _, from := range []int64{1, 2} {
			if from > 1 && test.first {
				continue
			}
			t.Run(fmt.Sprintf("%s, from call %d", test.name, from), func(t *testing.T) {
				wrong := func(n int64, a string) string {
					if n < from {
						return a
					}
					return test.wrong(a)
				}
				s := httptest.NewServer((&fakeServer{modify: wrong}).handler(t, false, false))
				defer s.Close()
				test.call.Era = echo.Modern
				h, err := load.DialHTTP(s.URL+"/mcp", 1, test.call)
				if err == nil {
					defer h.Close()
					_, err = h.Run(slice)
				}
				if err == nil {
					t.Error("no error for a wrong response, want one")
				}
			})
		}
	}
}

func TestMissingNotificationsAreErrors(t *testing.T) {
	s := httptest.NewServer(new(fakeServer).handler(t, true, false))
	defer s.Close()
	fewer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(body), echo.NotificationsTool,
			echo.ProgressTool)))
		new(fakeServer).handler(t, true, false).ServeHTTP(w, r)
	}))
	defer fewer.Close()
	for endpoint, ok := range map[string]bool{s.URL: true, fewer.URL: false} {
		h, err := load.DialHTTP(endpoint+"/mcp", 1,
			load.Call{Era: echo.Modern, Tool: echo.NotificationsTool, SSE: true})
		if (err == nil) != ok {
			t.Errorf("got error %v, want one: %t", err, !ok)
		}
		if err == nil {
			h.Close()
		}
	}
}

// newStdio connects a load to f, which serves a pair of pipes until the load
// closes them.
func newStdio(t *testing.T, f *fakeServer, window int, call load.Call) (*load.Stdio, error) {
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		defer in.Close()
		defer out.Close()
		for lines := bufio.NewScanner(in); lines.Scan(); {
			for _, m := range f.respond(t, lines.Bytes()) {
				io.WriteString(out, m+"\n")
			}
		}
	}()
	return load.NewStdio(to, from, window, call)
}

func TestStdioCountsEveryCall(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for _, window := range []int{1, 16, 128} {
			t.Run(fmt.Sprint(era, "/", window), func(t *testing.T) {
				f := new(fakeServer)
				s, err := newStdio(t, f, window, load.Call{Era: era, Tool: echo.Tool})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				got, err := s.Run(slice)
				if err != nil {
					t.Fatal(err)
				}
				if want := int(f.calls.Load()) - 1; got.Calls != want || want < window {
					t.Errorf("counted %d calls, want the %d of the server", got.Calls, want)
				}
			})
		}
	}
}

func TestSessionIDsMustBeUnique(t *testing.T) {
	distinct := httptest.NewServer(new(fakeServer).handler(t, false, false))
	defer distinct.Close()
	same := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Mcp-Session-Id", "same")
		new(fakeServer).handler(t, false, false).ServeHTTP(fixedHeader{w}, r)
	}))
	defer same.Close()
	for endpoint, ok := range map[string]bool{distinct.URL: true, same.URL: false} {
		s, err := load.DialSessions(endpoint + "/mcp")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(5, time.Minute); (err == nil) != ok {
			t.Errorf("got error %v, want one: %t", err, !ok)
		}
		s.Close()
	}
}

// fixedHeader hides the header from the code that writes the response.
type fixedHeader struct{ http.ResponseWriter }

func (fixedHeader) Header() http.Header { return http.Header{} }
