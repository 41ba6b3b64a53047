package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestContentTypeIsJSON(t *testing.T) {
	f := start(t, newTestCore(), nil)
	body, headers := modernCall("tools/call", `"name":"echo"`)
	for _, test := range []struct {
		header string
		status int
	}{
		{"Content-Type: application/json", 200},
		{"Content-Type: Application/JSON", 200},
		{"Content-Type: application/json; charset=utf-8", 200},
		{"Content-Type: application/json;charset=\"UTF-8\"", 200},
		{"Content-Type: ", 415},
		{"Content-Type: text/plain", 415},
		{"Content-Type: text/plain; application/json", 415},
		{"Content-Type: application/jsonx", 415},
		{"Content-Type: application/json, text/plain", 415},
		{"Content-Type: application/json; charset=utf-16", 415},
		{"Content-Type: application/x-www-form-urlencoded", 415},
		{"Content-Type: multipart/form-data; boundary=x", 415},
		{"Content-Encoding: identity", 200},
		{"Content-Encoding: gzip", 415},
		{"Content-Encoding: identity, gzip", 415},
	} {
		got := f.do(http.MethodPost, body, append(headers, test.header)...)
		if got.status != test.status || test.status == 415 && got.code() != mcp.CodeInvalidRequest {
			t.Errorf("%s: got %d %s, want %d", test.header, got.status, got.body, test.status)
		}
	}
}

func TestAcceptMustListJSON(t *testing.T) {
	f := start(t, newTestCore(), nil)
	body, headers := modernCall("tools/call", `"name":"echo"`)
	for _, test := range []struct {
		accept string
		status int
	}{
		{"application/json, text/event-stream", 200},
		{"text/event-stream,application/json", 200},
		{"text/event-stream;q=0.5, application/json;q=0.9", 200},
		{"*/*", 200},
		{"application/*, text/*", 200},
		{"", 200},
		{`text/plain;x="a,b", application/json, text/event-stream`, 200},
		{"application/json", 200},
		{"text/event-stream", 406},
		{"application/json;q=0, */*", 406},
		{"application/json;q=0.000, */*", 406},
		{"text/html", 406},
		{"nonsense", 406},
		{strings.Repeat("text/plain,", 32) + "*/*", 406},
	} {
		got := f.do(http.MethodPost, body, append(headers, "Accept: "+test.accept)...)
		if got.status != test.status {
			t.Errorf("%q: got %d %s, want %d", test.accept, got.status, got.body, test.status)
		}
	}
}

// The deadline for the body is removed when the body was read.
func TestBodyTimeout_DoesNotLimitTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		done := make(chan response)
		go func() { done <- f.modern("tools/call", `"name":"wait"`) }()
		<-core.started
		time.Sleep(time.Hour)
		core.proceed <- struct{}{}
		if got := <-done; got.status != 200 || !strings.Contains(got.body, "done") {
			t.Errorf("got %d %s, want 200", got.status, got.body)
		}
	})
}

// A client that does not read the response blocks the handler until the write timeout.
func TestUnreadResponse_IsAbandonedAfterTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body, headers := modernCall("tools/call", fmt.Sprintf(`"name":"echo","arguments":{"message":"%03000d"}`, 0))
		go f.request(t.Context(), http.MethodPost, body, headers...).Write(conn)
		synctest.Wait()
		begin := time.Now()
		if err := f.handler.Shutdown(t.Context()); err != nil { // waits for the call
			t.Error(err)
		}
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the response was abandoned after %v, want 30s", got)
		}
	})
}

func FuzzMediaType(f *testing.F) {
	for _, seed := range []string{"application/json", "application/json; charset=utf-8",
		"application/json;charset=latin1", "text/plain",
		"application/json;", "application/json; x", " application/json ", "APPLICATION/JSON",
		"application/json, text/plain", "a/b;c=\"d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		mediaType, params, err := mime.ParseMediaType(value)
		charset, hasCharset := params["charset"]
		want := err == nil && mediaType == "application/json" && (!hasCharset || strings.EqualFold(charset, "utf-8"))
		if got := mcphttp.IsJSON(value); got != want {
			t.Errorf("%q: got %t, want %t", value, got, want)
		}
	})
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"", "*/*", "application/json, text/event-stream", "application/json;q=0",
		"text/*;q=0, text/event-stream",
		`a/b;c="\",", application/json`, "application/json;q=1e-999", ",,,", "application/json;q=-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got := mcphttp.Accepts([]string{line}, "application/json")
		// A single media range decides.
		mediaRange, params, err := mime.ParseMediaType(line)
		if err == nil && !strings.ContainsAny(line, ",\"") {
			matches := mediaRange == "application/json" || mediaRange == "application/*" || mediaRange == "*/*"
			if _, weighed := params["q"]; !weighed && got != matches {
				t.Errorf("%q: got %t, want %t", line, got, matches)
			}
			if got && !matches {
				t.Errorf("%q: application/json is accepted, want it refused", line)
			}
		}
		// A type that no range mentions is not accepted.
		if got && !strings.Contains(line, "*") && !strings.Contains(strings.ToLower(line), "application/json") {
			t.Errorf("%q: application/json is accepted, want it refused", line)
		}
		// An explicit range takes precedence over */*;q=0.
		if !mcphttp.Accepts([]string{"application/json", "*/*;q=0"}, "application/json") {
			t.Error("*/*;q=0 takes precedence over application/json")
		}
	})
}

// A client that accepts only JSON receives the response, without notifications.
func TestAcceptOfJSONAlone(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "noisy"}, func(ctx context.Context, _ struct{}) (string, error) {
		for n := range 3 {
			mcp.Progress(ctx, float64(n), 3, "")
		}
		return "done", nil
	})
	h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLogger})
	for _, revision := range append([]string{"2026-07-28"}, streamableRevisions...) {
		tr := newServerTransport(t, h.ServeHTTP, &mcphttp.TransportOptions{
			Client: &http.Client{Transport: acceptsJSON{http.DefaultTransport}}})
		c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: revision, Logger: discardLogger})
		if err != nil {
			t.Fatalf("%s: %v", revision, err)
		}
		got, err := mcp.CallTool[string](t.Context(), c, "noisy", nil)
		if err != nil || got != "done" {
			t.Errorf("%s: got %q, error %v", revision, got, err)
		}
		c.Close()
	}
}

// acceptsJSON replaces Accept with application/json, and rejects responses that are event streams.
type acceptsJSON struct{ http.RoundTripper }

func (a acceptsJSON) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		r.Header.Set("Accept", "application/json")
	}
	res, err := a.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.Contains(res.Header.Get("Content-Type"), "event-stream") {
		return nil, errors.New("the response is an event stream")
	}
	return res, err
}
