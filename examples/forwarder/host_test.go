package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// server returns a server whose tool asks a question, with a prompt and a resource.
func newServer(name string) *mcp.Server {
	s := mcp.NewServer(name, "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(ctx context.Context, in struct{ A, B int }) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Add?", nil)
		return fmt.Sprint(name, in.A+in.B, sure), err
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "Hello from " + name, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "test:" + name, Name: name}, func(context.Context, string) (string, error) {
		return "text of " + name, nil
	})
	return s
}

// newTestHost returns a host of two servers with a revision, which run in this process or as a command.
func newTestHost(t *testing.T, upstream mcptest.Combination) *host {
	t.Helper()
	h := newHost(log.New(io.Discard, "", 0))
	t.Cleanup(func() { _ = h.Close() })
	for _, name := range []string{"calc", "shop"} {
		h.mu.Lock()
		c := mcptest.Dial(t, newServer(name), upstream, &mcp.ClientOptions{ForwardInput: true})
		h.servers[name] = &server{name: name, client: c, forward: mcp.Forward(c)}
		h.mu.Unlock()
	}
	return h
}

func accept(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
}

func TestHostForwardsBetweenAllRevisions(t *testing.T) {
	for _, transport := range []string{mcptest.InMemory, mcptest.HTTP} {
		for _, own := range driver.Revisions() {
			for _, upstream := range driver.Revisions() {
				if min(own, upstream) < driver.June2025 {
					continue // without elicitation
				}
				t.Run(fmt.Sprint(transport, " ", own, " to ", upstream), func(t *testing.T) {
					h := newTestHost(t, mcptest.Combination{Transport: transport, Revision: upstream})
					c := mcptest.Dial(t, h, mcptest.Combination{Transport: transport, Revision: own},
						&mcp.ClientOptions{Elicit: accept})
					testForwarding(t, h, c)
				})
			}
		}
	}
}

func testForwarding(t *testing.T, h *host, c *mcp.Client) {
	t.Helper()
	ctx := t.Context()
	tools, err := mcp.Collect(c.Tools(ctx))
	if err != nil || len(tools) != 2 || tools[0].Name != "calc.add" || tools[1].Name != "shop.add" {
		t.Errorf("tools: got %v, %v, want calc.add and shop.add", tools, err)
	}
	for _, name := range []string{"calc", "shop"} {
		sum, err := mcp.CallTool[string](ctx, c, name+".add", map[string]any{"A": 1, "B": 2})
		if want := name + "3 true"; err != nil || sum != want {
			t.Errorf("%s: got %q, %v, want %q", name, sum, err, want)
		}
		if p, err := c.GetPrompt(ctx, name+".greet", nil); err != nil || len(p.Messages) != 1 {
			t.Errorf("%s: got prompt %+v, %v", name, p, err)
		}
		r, err := c.ReadResource(ctx, "test:"+name)
		if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != "text of "+name {
			t.Errorf("%s: got resource %+v, %v", name, r, err)
		}
		if u := h.Usage(name); u.InProgress+u.Suspended > 0 {
			t.Errorf("%s: got usage %+v after the calls, want none", name, u)
		}
	}
	for _, name := range []string{"add", "none.add", ""} {
		_, err := c.CallTool(ctx, name, nil)
		var refused *mcp.Error
		if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
			t.Errorf("tool %q: got %v, want code %d", name, err, mcp.CodeInvalidParams)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls["calc.add"] != 1 || h.calls["shop.add"] != 1 {
		t.Errorf("got counts %v, want one call of each tool", h.calls)
	}
}

func TestHostAnnouncesChanges(t *testing.T) {
	for _, revision := range driver.Revisions() {
		t.Run(revision, func(t *testing.T) {
			h := newHost(log.New(io.Discard, "", 0))
			t.Cleanup(func() { _ = h.Close() })
			c := mcptest.Dial(t, h, mcptest.Combination{Transport: mcptest.HTTP, Revision: revision}, nil)
			for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
				switch {
				case err != nil:
					t.Fatal(err)
				case e.Kind == mcp.EventListening:
					if err := h.Add(t.Context(), "calc", mcp.InMemory(newServer("calc"))); err != nil {
						t.Fatal(err)
					}
				case e.Kind == mcp.EventToolsChanged:
					tools, err := mcp.Collect(c.Tools(t.Context()))
					if err != nil || !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == "calc.add" }) {
						t.Errorf("got tools %v, %v after the change", tools, err)
					}
					return
				}
			}
		})
	}
}
