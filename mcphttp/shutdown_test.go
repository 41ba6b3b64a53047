package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestShutdown_FinishesCallsAndEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s, asked := f.initialize(november2025), f.initialize(november2025)
		standalone := f.stream(s.get(t.Context()))
		standalone.next()
		old := f.initializedSSE(t.Context())
		question := f.stream(asked.post(t.Context(), callBody(1, "ask")))
		question.next()
		id := strings.Split(string(question.next().Data), `"`)[7]
		results := make(chan response, 2)
		go func() { results <- s.send(callBody(2, "wait")) }()
		go func() { results <- f.modern("tools/call", `"name":"wait"`) }()
		<-core.started
		<-core.started

		done := make(chan error)
		go func() { done <- f.handler.Shutdown(t.Context()) }()
		synctest.Wait()
		for name, got := range map[string]response{
			"modern":     f.modern("tools/call", `"name":"echo"`),
			"session":    s.send(callBody(3, "echo")),
			"initialize": f.do(http.MethodPost, initializeBody(november2025)),
			"GET":        f.do(http.MethodGet, "", asked.headers...),
			"GET of SSE": f.do(http.MethodGet, ""),
			"HTTP+SSE":   old.send(callBody(3, "echo")),
		} {
			if got.status != 503 || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: got %d, want 503 with Retry-After", name, got.status)
			}
		}
		// Responses that calls in progress wait for are accepted.
		reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{}}}`, id)
		if got := asked.send(reply); got.status != 202 {
			t.Errorf("response to the question: got %d %s, want 202", got.status, got.body)
		}
		if e := question.next(); !strings.Contains(string(e.Data), `"result"`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		core.proceed <- struct{}{}
		core.proceed <- struct{}{}
		for range 2 {
			if got := <-results; got.status != 200 || !strings.Contains(got.body, "done") {
				t.Errorf("call in progress: got %d %s, want its result", got.status, got.body)
			}
		}
		standalone.expectEnd()
		old.expectEnd()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdown_CancelsCallsBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		results := make(chan response, 2)
		go func() { results <- s.send(callBody(2, "wait")) }()
		go func() { results <- f.modern("tools/call", `"name":"wait"`) }()
		<-core.started
		<-core.started
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		begin := time.Now()
		if err := f.handler.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("Shutdown took %v, want 10s", got)
		}
		for range 2 {
			if cause := <-core.causes; !errors.Is(cause, mcp.ErrShutdown) {
				t.Errorf("cause of the call's end: got %v, want ErrShutdown", cause)
			}
			if got := <-results; got.code() == 0 {
				t.Errorf("got %d %s, want an error", got.status, got.body)
			}
		}
	})
}

func TestShutdown_ReturnsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		done := make(chan response, 1)
		go func() { done <- f.modern("tools/call", `"name":"stubborn"`) }()
		<-core.started
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.handler.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		core.proceed <- struct{}{}
		<-core.causes
		<-done
	})
}

func TestShutdown_RefusesASessionThatIsInitializing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, proceed := make(chan struct{}), make(chan struct{})
		f := start(t, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			close(started)
			<-proceed
			return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`), nil
		}), nil)
		done := make(chan response)
		go func() { done <- f.do(http.MethodPost, initializeBody(november2025)) }()
		<-started
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.handler.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: got %v, want DeadlineExceeded", err)
		}
		close(proceed)
		if got := <-done; got.code() != mcp.CodeInvalidRequest || got.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("got %d %s %s, want an error and no session", got.status, got.header, got.body)
		}
	})
}

func TestServe_EndsSubscriptionsWithTheirResult(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	var methods string
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods += r.Method
			next.ServeHTTP(w, r)
		})
	}
	h := mcphttp.NewHandler(newTestCore(), &mcphttp.Options{Logger: discardLogger})
	go func() { done <- mcphttp.Serve(ctx, l, "/mcp", h, outer) }()
	url := "http://" + l.Addr().String()
	body, headers := modernCall("subscriptions/listen", `"notifications":{}`)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, _ := http.NewRequest(http.MethodPost, url+"/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := client.Get(url + "/other"); err != nil || other.StatusCode != 404 {
		t.Errorf("another path: got %v, %v", other, err)
	} else {
		other.Body.Close()
	}
	cancel()
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(b), `"ended":true`) {
		t.Errorf("got %s, %v; want the result of the subscription", b, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if methods != "POST"+"GET" { // of every path, because authorization has paths of its own
		t.Errorf("the middleware received %q, want POST and GET", methods)
	}
	if err := mcphttp.Serve(t.Context(), l, "/mcp", h); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed listener: got %v, want net.ErrClosed", err)
	}
}

// Requirement: HTTP-03
func TestListenAndServeBindsLoopbackByDefault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	// The address is in use, and the error contains it.
	err = mcphttp.ListenAndServe(t.Context(), ":"+port, "/mcp", mcphttp.NewHandler(newTestCore(), nil))
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr.String() != "127.0.0.1:"+port {
		t.Errorf("got %v, want the address to be 127.0.0.1:%s", err, port)
	}
}
