package redis_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type greeting struct {
	Name string `json:"name"`
}

// Each request of a session arrives at the next of three processes, which share a store. A rolling
// restart of all processes does not end the session.
func TestEachRequestAtTheNextProcess(t *testing.T) {
	url, opts := need(t).url(), calm()
	opts.Prefix = fmt.Sprint("test", prefixes.Add(1))
	var handlers [3]atomic.Pointer[mcphttp.Handler]
	begin := func(process int) {
		store := open(t, url, opts)
		server := mcp.NewServer("greeter", "1.0.0", nil)
		tool := &mcp.Tool{Name: "greet", Description: "Say hello"}
		mcp.AddTool(server, tool, func(_ context.Context, in greeting) (string, error) {
			return "Hello, " + in.Name + ", from process " + strconv.Itoa(process), nil
		})
		sessions := mcphttp.SessionOptions{Store: store.Sessions(), Events: store.Events()}
		handlers[process].Store(mcphttp.NewHandler(server, &mcphttp.Options{Sessions: sessions}))
	}
	for process := range handlers {
		begin(process)
	}
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[requests.Add(1)%3].Load().ServeHTTP(w, r)
	}))
	defer server.Close()
	client, err := mcp.Connect(t.Context(), mcphttp.NewTransport(server.URL, nil),
		&mcp.ClientOptions{Revision: "2025-11-25"})
	must(t, err)
	served := map[string]int{}
	for n := range 30 {
		if n%10 == 5 { // each process restarts once
			must(t, handlers[n/10].Load().Shutdown(t.Context()))
			begin(n / 10)
		}
		got, err := client.CallTool(t.Context(), "greet", map[string]any{"name": strconv.Itoa(n)})
		must(t, err)
		text := got.Content[0].(*mcp.TextContent).Text
		if want := "Hello, " + strconv.Itoa(n) + ", from process "; text[:len(want)] != want {
			t.Errorf("call %d: got %q", n, text)
		}
		served[text[len(text)-1:]]++
	}
	if len(served) != 3 {
		t.Errorf("calls by process: %v, want all three", served)
	}
	must(t, client.Close())
	await(t, func() error { // DELETE deleted the record
		if keys := keysOf(t, opts.Prefix+":session"); len(keys) > 0 {
			return fmt.Errorf("these keys remain: %q", keys)
		}
		return nil
	})
	for process := range handlers {
		must(t, handlers[process].Load().Shutdown(t.Context()))
	}
}
