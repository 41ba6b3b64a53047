package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// connectTo connects a client to a modern server whose results are those of serve.
func connectTo(t *testing.T, opts *mcp.ClientOptions, serve func(req *mcp.Request) string) *mcp.Client {
	t.Helper()
	h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],` +
				`"capabilities":{"tools":{},"prompts":{},"resources":{}},"ttlMs":0,"cacheScope":"private"}`), nil
		}
		return mcp.RawResult(serve(req)), nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The pages have different sizes, one of them none, and cursors that look like paths, numbers and JSON.
//
// Requirement: PAG-02, PAG-03, PRM-06
func TestCursorsAreOpaque(t *testing.T) {
	pages := []struct {
		cursor string // encoded, of this page
		items  int
	}{{"", 3}, {`"5"`, 0}, {`"/a?b=%20&\u00e9"`, 1}, {`"{\"page\":3}"`, 7}}
	for method, test := range map[string]struct {
		member, item string
		list         func(c *mcp.Client) (int, error)
	}{
		"tools/list": {"tools", `{"name":"n%d","inputSchema":{"type":"object"}}`, func(c *mcp.Client) (n int, failed error) {
			for _, err := range c.Tools(t.Context()) {
				n, failed = n+1, err
			}
			return n, failed
		}},
		"prompts/list": {"prompts", `{"name":"n%d"}`, func(c *mcp.Client) (n int, failed error) {
			for _, err := range c.Prompts(t.Context()) {
				n, failed = n+1, err
			}
			return n, failed
		}},
		"resources/list": {"resources", `{"uri":"x:%d","name":"n"}`, func(c *mcp.Client) (n int, failed error) {
			for _, err := range c.Resources(t.Context()) {
				n, failed = n+1, err
			}
			return n, failed
		}},
	} {
		t.Run(method, func(t *testing.T) {
			var cursors []string
			c := connectTo(t, nil, func(req *mcp.Request) string {
				cursor, _ := req.Param("cursor")
				page := len(cursors)
				cursors = append(cursors, string(cursor))
				var items []string
				for n := range pages[page].items {
					items = append(items, fmt.Sprintf(test.item, 10*page+n))
				}
				next := ""
				if page+1 < len(pages) {
					next = `,"nextCursor":` + pages[page+1].cursor
				}
				return `{"resultType":"complete","` + test.member + `":[` + strings.Join(items, ",") + `],"ttlMs":0,"cacheScope":"private"` + next + `}`
			})
			n, err := test.list(c)
			if err != nil || n != 11 {
				t.Errorf("got %d items, %v, want 11", n, err)
			}
			for i, cursor := range cursors {
				var got, want string
				_ = json.Unmarshal([]byte(cursor), &got)
				_ = json.Unmarshal([]byte(pages[i].cursor), &want)
				if got != want {
					t.Errorf("page %d: got cursor %s, want %s", i, cursor, pages[i].cursor)
				}
			}
		})
	}
}

// The server asks for roots before it returns a resource. The state has bytes that a parser would change.
//
// Requirement: MRTR-06, MRTR-09, MRTR-20, CACHE-05
func TestRetryWithAnswers(t *testing.T) {
	const state = ` {"a": 1.0,"a":2} é/+==`
	asked := 0
	opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) {
		asked++
		return []mcp.Root{{URI: "file:///work"}}, nil
	}}
	requests := 0
	c := connectTo(t, opts, func(req *mcp.Request) string {
		requests++
		answers, retry := req.Param("inputResponses")
		if !retry {
			encoded, _ := json.Marshal(state)
			return `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":` + string(encoded) + `}`
		}
		if got := string(answers); got != `{"r":{"roots":[{"uri":"file:///work"}]}}` || asked != requests/2 {
			t.Errorf("got inputResponses %s after %d calls of Roots, want a bare result after %d", got, asked, requests/2)
		}
		raw, _ := req.Param("requestState")
		var got string
		if err := json.Unmarshal(raw, &got); err != nil || got != state {
			t.Errorf("got requestState %s, %v, want %q", raw, err, state)
		}
		return `{"resultType":"complete","contents":[{"uri":"x:1","text":"a"}],"ttlMs":3600000,"cacheScope":"public"}`
	})
	for range 2 {
		if _, err := c.ReadResource(t.Context(), "x:1"); err != nil {
			t.Fatal(err)
		}
	}
	// CACHE-05: the result of the first retry has a TTL and was not cached.
	if requests != 4 {
		t.Errorf("got %d requests, want 4", requests)
	}
}

// Requirement: MRTR-10
func TestRetryHasANewID(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		if on.Transport == mcptest.InMemory {
			continue // calls the handler directly, without JSON-RPC messages
		}
		t.Run(on.String(), func(t *testing.T) {
			var ids []jsonrpc.ID
			s := newServer(t, nil)
			addTool(s, "roots", func(ctx context.Context) (string, error) {
				ids = append(ids, mcp.RequestFrom(ctx).ID)
				_, err := mcp.Roots(ctx)
				return "", err
			})
			c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }})
			if _, err := c.CallTool(t.Context(), "roots", nil); err != nil {
				t.Fatal(err)
			}
			if len(ids) != 2 || ids[0] == ids[1] {
				t.Errorf("got ids %v, want two different ones", ids)
			}
		})
	}
}

// Requirement: ROOT-01, ROOT-02, SAMP-01, SAMP-02
func TestClientDeclaresWhatItImplements(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "capabilities", func(ctx context.Context) (string, error) {
		c := mcp.RequestFrom(ctx).Capabilities()
		return fmt.Sprint(c.Roots != nil, c.Sampling != nil, c.Sampling != nil && c.Sampling.Tools != nil, c.Elicitation != nil), nil
	})
	roots := func(context.Context) ([]mcp.Root, error) { return nil, nil }
	sample := func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) { return nil, nil }
	for _, on := range mcptest.Combinations() {
		for want, opts := range map[string]*mcp.ClientOptions{
			"false false false false": {},
			"true false false false":  {Roots: roots},
			"false true false false":  {Sample: sample},
			"false true true false":   {Sample: sample, SampleTools: true},
		} {
			if opts.SampleTools && !slices.Contains(mcptest.Since("2025-11-25"), on) {
				want = "false true false false"
			}
			t.Run(on.String()+" "+want, func(t *testing.T) {
				c := mcptest.Dial(t, s, on, opts)
				for range 2 { // in each request
					if got, err := mcp.CallTool[string](t.Context(), c, "capabilities", nil); err != nil || got != want {
						t.Errorf("got capabilities %s, %v, want %s", got, err, want)
					}
				}
			})
		}
	}
}
