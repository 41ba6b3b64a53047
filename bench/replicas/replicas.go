package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

// replicas are the processes of a server.
type replicas struct {
	servers  []*mcp.Server
	handlers []*mcphttp.Handler
	stores   []*shared.Store
	stored   *replicas // the same with stored events; nil if there are none
}

// greeting is the input of the tool echo.
type greeting struct {
	Message string `json:"message"`
}

// newReplicas returns n processes that share a store; without a URL, each has its memory alone. Without
// events, streams get no ids.
func newReplicas(ctx context.Context, n int, url string, events bool) (*replicas, error) {
	r := &replicas{}
	for range n {
		opts := &mcphttp.Options{}
		serverOpts := &mcp.ServerOptions{}
		if url != "" {
			store, err := shared.Open(ctx, url)
			if err != nil {
				r.close()
				return nil, err
			}
			r.stores = append(r.stores, store)
			store.Configure(opts)
			if !events {
				opts.Sessions.Events = nil
			}
			serverOpts.StateKeys, serverOpts.StateStore = store.StateKeys(), store.Redis.States()
		}
		opts.Sessions.Max, opts.Sessions.MaxPerPrincipal = 1<<20, 1<<20
		s := mcp.NewServer("replicas", "1.0.0", serverOpts)
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in greeting) (string, error) {
			return in.Message, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
			return fmt.Sprint(sure), err
		})
		mcp.AddTool(s, &mcp.Tool{Name: "step"}, func(ctx context.Context, _ struct{}) (string, error) {
			mcp.Progress(ctx, 1, 2, "half")
			return "done", nil
		})
		r.servers, r.handlers = append(r.servers, s), append(r.handlers, mcphttp.NewHandler(s, opts))
	}
	return r, nil
}

func (r *replicas) close() {
	for _, h := range r.handlers {
		_ = h.Shutdown(context.Background())
	}
	for _, s := range r.stores {
		s.Close()
	}
}

const (
	revision   = "2025-11-25"
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + revision + `",` +
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"bench","version":"1.0.0"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	call        = `{"jsonrpc":"2.0","id":%d,"method":"tools/call",` +
		`"params":{"name":"echo","arguments":{"message":"hello"}}}`
)

// request returns a request of a session.
func request(ctx context.Context, method, session, body string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", revision)
	}
	return req
}

// do sends a request to a process, and returns the response. A status of 400 or more is an error.
func (r *replicas) do(process int, method, session, body string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r.handlers[process%len(r.handlers)].ServeHTTP(w, request(context.Background(), method, session, body))
	if w.Code >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s: status %d: %s", method, w.Code, w.Body)
	}
	return w, nil
}

// open opens a session at a process.
func (r *replicas) open(process int) (string, error) {
	w, err := r.do(process, http.MethodPost, "", initialize)
	if err != nil {
		return "", err
	}
	id := w.Header().Get("Mcp-Session-Id")
	_, err = r.do(process, http.MethodPost, id, initialized)
	return id, err
}

// call calls a tool that returns at once.
func (r *replicas) call(process, n int, session string) error {
	w, err := r.do(process, http.MethodPost, session, fmt.Sprintf(call, n))
	if err == nil && !bytes.Contains(w.Body.Bytes(), []byte(`"hello"`)) {
		err = fmt.Errorf("wrong response: %s", w.Body)
	}
	return err
}

// A questioner is the writer of a response that contains a question. An event may be several writes.
type questioner struct {
	*httptest.ResponseRecorder
	asked chan string // receives the id of the question
}

func (q *questioner) WriteString(s string) (int, error) { return q.Write([]byte(s)) }

func (q *questioner) Write(b []byte) (int, error) {
	n, err := q.ResponseRecorder.Write(b)
	for line := range bytes.Lines(q.Body.Bytes()) {
		data, _ := bytes.CutPrefix(line, []byte("data: "))
		var message struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(data, &message) == nil && message.Method == "elicitation/create" && q.asked != nil {
			q.asked <- string(message.ID)
			q.asked = nil
		}
	}
	return n, err
}

// ask makes a call at a process that asks a question, which is answered at another process.
func (r *replicas) ask(process, answerer, n int, session string) error {
	asked, done := make(chan string, 1), make(chan struct{})
	q := &questioner{httptest.NewRecorder(), asked}
	go func() {
		defer close(done)
		r.handlers[process].ServeHTTP(q, request(context.Background(), http.MethodPost, session, fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"ask","arguments":{}}}`, n)))
	}()
	select {
	case id := <-asked:
		if _, err := r.do(answerer, http.MethodPost, session,
			`{"jsonrpc":"2.0","id":`+id+`,"result":{"action":"accept","content":{"value":true}}}`); err != nil {
			return err
		}
		<-done
	case <-done:
	}
	if !bytes.Contains(q.Body.Bytes(), []byte(`"true"`)) {
		return fmt.Errorf("wrong response: %s", q.Body)
	}
	return nil
}
