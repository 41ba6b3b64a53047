package mcp_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A session gets the current list although encoded lists are cached: after changes, and where middleware
// replaces the list or encodes it itself.
func TestSessionsGetTheCurrentList(t *testing.T) {
	middleware := "none"
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method != "tools/list" {
				return next.ServeMCP(ctx, req)
			}
			if middleware == "writes" {
				raw, err := mcp.AppendResult(nil, ctx, next, req)
				if err != nil {
					return nil, err
				}
				return mcp.RawResult(raw), nil
			}
			res, err := next.ServeMCP(ctx, req)
			if list, ok := res.(*mcp.ListToolsResult); ok {
				switch middleware {
				case "cuts":
					list.Tools = list.Tools[1:]
				case "meta":
					list.Meta = mcp.Meta{"example.com/a": 1}
				}
			}
			return res, err
		})
	}}})
	const n = 30
	var tools []*mcp.Registration[mcp.Tool]
	for i := range n {
		tools = append(tools, mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool_%02d", i), Description: "Does what a tool of this name does."},
			func(context.Context, struct{}) (string, error) { return "", nil }))
	}
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Run(t.Context(), mcp.NewStreamConn(near, near, nil)) }()
	client := mcp.NewStreamConn(far, far, nil)
	ask := func(method, params string) *jsonrpc.Message {
		t.Helper()
		id := jsonrpc.IntID(1)
		if err := client.Write(t.Context(), &jsonrpc.Message{ID: id, Method: method, Params: []byte(params)}); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := client.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.ID == id {
				return m
			}
		}
	}
	ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`)

	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("tool_%02d", i))
	}
	for _, step := range []struct {
		middleware string
		change     func()
		want       []string
	}{
		{middleware: "none", want: all},
		{middleware: "none", want: all},
		{middleware: "cuts", want: all[1:]},
		{middleware: "none", want: all},
		{middleware: "meta", want: all},
		{middleware: "writes", want: all},
		{middleware: "none", want: all},
		{middleware: "none", change: tools[0].Disable, want: all[1:]},
		{middleware: "none", want: all[1:]},
		{middleware: "none", change: tools[0].Enable, want: all},
		{middleware: "none", change: tools[n-1].Remove, want: all[:n-1]},
	} {
		middleware = step.middleware
		if step.change != nil {
			step.change()
		}
		m := ask("tools/list", `{}`)
		var got struct {
			Tools []struct{ Name string }
			Meta  map[string]any `json:"_meta"`
			Type  string         `json:"resultType"` // which sessions lack
		}
		if err := json.Unmarshal(m.Result, &got, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatalf("%s: %v in %s", step.middleware, err, m.Result)
		}
		var names []string
		for _, tool := range got.Tools {
			names = append(names, tool.Name)
		}
		_, has := got.Meta["example.com/a"]
		if !slices.Equal(names, step.want) || has != (step.middleware == "meta") || got.Type != "" {
			t.Errorf("%s: got %v, %v and the type %q, want %v", step.middleware, names, got.Meta, got.Type, step.want)
		}
	}
	far.Close()
	<-served
}
