package mcp_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// answerInSession returns the client's response to a request that the server of a session sends.
// The revision is that of the options.
func answerInSession(t *testing.T, opts *mcp.ClientOptions, method, params string) (response *jsonrpc.Message) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		defer server.Close()
		full := *opts
		full.Logger = cmp.Or(full.Logger, discardLogger())
		connected, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			initialize, err := server.Read(t.Context())
			if err != nil {
				return
			}
			result := strings.Replace(initialized, "2025-06-18", opts.Revision, 1)
			_ = server.Write(t.Context(), &jsonrpc.Message{ID: initialize.ID, Result: []byte(result)})
			_, _ = server.Read(t.Context()) // notifications/initialized
			<-connected
			_ = server.Write(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(7), Method: method, Params: []byte(params)})
			response, _ = server.Read(t.Context())
		}()
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &full)
		if err != nil {
			t.Fatal(err)
		}
		close(connected)
		<-done
		c.Close()
	})
	if response == nil {
		t.Fatal("the client sent no response")
	}
	return response
}

// Requirement: ROOT-04, ROOT-07
func TestInvalidRootsAreNotSent(t *testing.T) {
	for uri, valid := range map[string]bool{
		"file:///src":            true,
		"file:///C:/src/a%20b":   true,
		"file://host/share":      true,
		"":                       false,
		"http://example.com/src": false,
		"/src":                   false,
		"file:src":               false,
		"file://%zz":             false,
		"file:///src/../etc":     false,
		"file:///src/%2e%2e/etc": false,
		"file:///src\nx":         false,
	} {
		var asked int
		opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) {
			asked++
			return []mcp.Root{{URI: "file:///home"}, {URI: uri}}, nil
		}}
		h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
			switch {
			case req.Method == "server/discover":
				return mcp.RawResult(discovered), nil
			case memberOf(t, req.Params, "inputResponses") == "":
				return mcp.RawResult(`{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`), nil
			case !valid:
				t.Errorf("%q: the server received %s", uri, req.Params)
			}
			return mcp.RawResult(emptyContent), nil
		})
		for _, on := range mcptest.Combinations() {
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Dial(t, h, on, opts)
				_, err := c.CallTool(t.Context(), "t", nil)
				switch {
				case (err == nil) != valid:
					t.Errorf("%s: %q: got error %v, want valid %v", on, uri, err, valid)
				case on.Modern() && err != nil && !strings.Contains(err.Error(), "must be a file URI"):
					t.Errorf("%s: %q: got error %v, want one that states the rule", on, uri, err)
				}
			})
		}
		if asked != len(mcptest.Combinations()) {
			t.Errorf("%q: Roots was called %d times", uri, asked)
		}
	}
}
