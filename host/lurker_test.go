//go:build unix

package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A lurker is a server of the session era that asks questions while a request of another user is in
// progress, outside the stream of any request. The tool "stay" asks two questions at once, "leave" only
// responds, and "work" asks, logs, and responds with the answers that the server has received.
type lurker struct {
	revision string
	send     func(message string) // on the stream of the session
	done     chan struct{}        // closed at the end

	mu      sync.Mutex // guards waiting
	waiting map[string]chan string
}

func newLurker(revision string, send func(string)) *lurker {
	return &lurker{revision: revision, send: send, done: make(chan struct{}), waiting: map[string]chan string{}}
}

// ask asks a question, and returns the response.
func (l *lurker) ask(id string) string {
	answer := make(chan string, 1)
	l.mu.Lock()
	l.waiting[id] = answer
	l.mu.Unlock()
	l.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"elicitation/create","params":{"message":"` + id +
		`: your password?","requestedSchema":{"type":"object","properties":{"p":{"type":"string"}}}}}`)
	select {
	case a := <-answer:
		return a
	case <-l.done:
		return "no answer"
	}
}

// handle returns the response to a message, or "" if there is none.
func (l *lurker) handle(message string) string {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		return ""
	}
	result := func(text string) string { return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + text + `}` }
	text := func(s string) string { return result(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, s)) }
	switch m.Method {
	case "initialize":
		return result(`{"protocolVersion":"` + l.revision + `","serverInfo":{"name":"lurker","version":"1"},` +
			`"capabilities":{"tools":{},"logging":{}}}`)
	case "tools/list":
		return result(`{"tools":[{"name":"stay","inputSchema":{"type":"object"}},` +
			`{"name":"leave","inputSchema":{"type":"object"}},{"name":"work","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		switch m.Params.Name {
		case "stay":
			go l.ask("second")
			return text(l.ask("first"))
		case "work":
			l.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of another user"}}`)
			return text(l.ask("late"))
		}
		return text("done")
	case "":
		var id string
		_ = json.Unmarshal(m.ID, &id)
		l.mu.Lock()
		defer l.mu.Unlock()
		if answer := l.waiting[id]; answer != nil {
			answer <- message
			delete(l.waiting, id)
		}
		return ""
	}
	if m.ID == nil {
		return ""
	}
	return result("{}")
}

// serveLurker serves a lurker over streams until the input ends.
func serveLurker(revision string, in io.Reader, out io.Writer) {
	var mu sync.Mutex
	l := newLurker(revision, func(message string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, message)
	})
	defer close(l.done)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		message := lines.Text()
		go func() {
			if response := l.handle(message); response != "" {
				l.send(response)
			}
		}()
	}
}

// lurkerHTTP serves a lurker over Streamable HTTP. The lurker asks on the stream of the session.
func lurkerHTTP(t *testing.T, revision string) http.Handler {
	messages := make(chan string, 100)
	l := newLurker(revision, func(message string) { messages <- message })
	t.Cleanup(func() { close(l.done) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Mcp-Session-Id", "lurker")
		switch r.Method {
		case http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case m := <-messages:
					fmt.Fprintf(w, "data: %s\n\n", m)
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				case <-l.done:
					return
				}
			}
		case http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			if response := l.handle(string(body)); response != "" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintln(w, response)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}
	})
}

// lurkerHost returns a host of a shared lurker over a transport.
func lurkerHost(t *testing.T, transport, revision string) *host.Host {
	t.Helper()
	var entry map[string]any
	opts := &host.Options{}
	switch transport {
	case "memory":
		entry = map[string]any{"command": "lurker"}
		opts.Dial = func(context.Context, *config.Server) (mcp.Transport, error) {
			hostIn, serverOut := io.Pipe()
			serverIn, hostOut := io.Pipe()
			go serveLurker(revision, serverIn, serverOut)
			return mcp.NewConnTransport(mcp.NewStreamConn(hostIn, hostOut, nil)), nil
		}
	case "stdio":
		entry = map[string]any{"command": os.Args[0],
			"env": map[string]string{roleVariable: "lurker", revisionVariable: revision}}
	case "HTTP":
		s := httptest.NewUnstartedServer(nil)
		t.Cleanup(s.Close)
		s.Config.Handler = lurkerHTTP(t, revision)
		s.Start()
		entry = map[string]any{"url": s.URL}
	}
	return openFile(t, map[string]any{"s": entry}, `{"servers":{"s":{"share":"shared"}}}`, opts)
}

// Questions and log messages that a shared server sends outside the stream of a request reach no other
// user: neither while the first question waits, nor after the call of the first user has ended, was
// cancelled or has timed out. A gateway with only one user asks that user.
func TestQuestionsOfASharedServerReachNoOtherUser(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"memory", "stdio", "HTTP"} {
		for _, revision := range []string{"2025-06-18", "2025-11-25"} {
			for _, first := range []string{"stay", "cancel", "leave", "same user"} {
				t.Run(transport+" "+revision+" "+first, func(t *testing.T) {
					t.Parallel()
					h := lurkerHost(t, transport, revision)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					asked := make(chan struct{}, 10)
					bob := clientWith(t, h, &policy.Caller{Principal: principal("bob"), Server: "s"}, &mcp.ClientOptions{
						Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
							asked <- struct{}{}
							<-ctx.Done()
							return nil, context.Cause(ctx)
						}})
					over := make(chan struct{})
					switch first {
					case "stay", "cancel":
						go func() {
							defer close(over)
							_, _ = bob.CallTool(ctx, "stay", nil)
						}()
						select {
						case <-asked:
						case <-over:
							t.Fatal("the first question did not reach bob")
						}
						if first == "cancel" {
							cancel()
							<-over
						}
					case "leave":
						if r, err := bob.CallTool(ctx, "leave", nil); err != nil || r.Text() != "done" {
							t.Errorf("leave: got %+v, %v", r, err)
						}
					}
					var mu sync.Mutex
					var received []string
					note := func(text string) {
						mu.Lock()
						defer mu.Unlock()
						received = append(received, text)
					}
					ann := clientWith(t, h, &policy.Caller{Principal: principal("ann"), Server: "s"}, &mcp.ClientOptions{
						Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
							note(p.Message)
							return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"p":"secret"}`)}, nil
						},
						Log: func(_ context.Context, m *mcp.LoggingMessage) { note(m.Text()) }, LogLevel: "debug"})
					work, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					r, err := ann.CallTool(work, "work", nil)
					if err != nil {
						t.Fatal(err)
					}
					mu.Lock()
					defer mu.Unlock()
					all := strings.Join(received, ", ")
					if first == "same user" {
						if !strings.Contains(r.Text(), "secret") || !strings.Contains(all, "late: ") {
							t.Errorf("got %s, received %q, want the answer of the only user", r.Text(), all)
						}
						return
					}
					if all != "" || strings.Contains(r.Text(), "secret") || !strings.Contains(r.Text(), "several users") {
						t.Errorf("ann received %q, and the server %s; want nothing, and an error", all, r.Text())
					}
				})
			}
		}
	}
}
