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

func TestShutdown_CallsFinishAndStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s, asked := f.initialize(november2025), f.initialize(november2025)
		alone := f.stream(s.get(t.Context()))
		alone.next()
		old := f.endpoint(t.Context())
		old.initialize()
		question := f.stream(asked.post(t.Context(), callBody(1, "ask")))
		question.next()
		id := strings.Split(string(question.next().Data), `"`)[7]
		results := make(chan answer, 2)
		go func() { results <- s.send(callBody(2, "wait")) }()
		go func() { results <- f.modern("tools/call", `"name":"wait"`) }()
		<-core.started
		<-core.started

		done := make(chan error)
		go func() { done <- f.handler.Shutdown(t.Context()) }()
		synctest.Wait()
		for name, got := range map[string]answer{
			"modern":      f.modern("tools/call", `"name":"echo"`),
			"session":     s.send(callBody(3, "echo")),
			"initialize":  f.do(http.MethodPost, initializeBody(november2025)),
			"GET":         f.do(http.MethodGet, "", asked.headers...),
			"GET of 2024": f.do(http.MethodGet, ""),
			"2024":        old.send(callBody(3, "echo")),
		} {
			if got.status != 503 || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: got %d, want 503", name, got.status)
			}
		}
		// What calls in progress wait for is let in.
		answerBody := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{}}}`, id)
		if got := asked.send(answerBody); got.status != 202 {
			t.Errorf("an answer got %d %s", got.status, got.body)
		}
		if e := question.next(); !strings.Contains(string(e.Data), `"result"`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		core.proceed <- struct{}{}
		core.proceed <- struct{}{}
		for range 2 {
			if got := <-results; got.status != 200 || !strings.Contains(got.body, "done") {
				t.Errorf("a call in progress got %d %s", got.status, got.body)
			}
		}
		alone.ends()
		old.ends()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdown_DeadlineCancelsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		results := make(chan answer, 2)
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
			t.Errorf("it took %v, want 10s", got)
		}
		for range 2 {
			if cause := <-core.causes; !errors.Is(cause, mcp.ErrShutdown) {
				t.Errorf("the cause is %v, want ErrShutdown", cause)
			}
			if got := <-results; got.code() == 0 {
				t.Errorf("got %d %s, want an error", got.status, got.body)
			}
		}
	})
}

func TestShutdown_ReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		answered := make(chan answer, 1)
		go func() { answered <- f.modern("tools/call", `"name":"stubborn"`) }()
		<-core.started
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.handler.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		core.proceed <- struct{}{}
		<-core.causes
		<-answered
	})
}

func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	var seen string
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen += r.Method
			next.ServeHTTP(w, r)
		})
	}
	h := mcphttp.NewHandler(newTestCore(), &mcphttp.Options{Logger: quiet})
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
	if seen != "POST"+"GET" { // of every path: authorization has some of its own
		t.Errorf("the middleware saw %q", seen)
	}
	if err := mcphttp.Serve(t.Context(), l, "/mcp", h); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a closed listener: got %v", err)
	}
}

func TestHTTP03_ListenAndServeIsLoopbackByDefault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	// The address is taken, and the error says which one it was.
	err = mcphttp.ListenAndServe(t.Context(), ":"+port, "/mcp", mcphttp.NewHandler(newTestCore(), nil))
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr.String() != "127.0.0.1:"+port {
		t.Errorf("got %v, want the address to be 127.0.0.1:%s", err, port)
	}
}
