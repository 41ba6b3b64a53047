package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// TestMRTR_OneSemanticsInBothEras asks in several rounds, of every client there is.
func TestMRTR_OneSemanticsInBothEras(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "plan"}, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 3, "begun")
		id, err := mcp.Once(ctx, "id", func(context.Context) (string, error) { return "r1", nil })
		if err != nil {
			return "", err
		}
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		mcp.Progress(ctx, 2, 3, "found")
		thought, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{
			says(mcp.RoleUser, mcp.Text("Think of "+id), mcp.Text("in "+roots[0].Name))}})
		if err != nil {
			return "", err
		}
		name := "nobody"
		if mcp.RequestFrom(ctx).Capabilities().Elicitation != nil {
			who, err := mcp.Ask[struct {
				Name string `json:"name" jsonschema:"who asks,default=Ada"`
				Size string `json:"size" jsonschema:"how large,enum=s|l,titles=Small|Large,default=s"`
			}](ctx, "who", "Who are you?", nil)
			if err != nil {
				return "", err
			}
			name = who.Name + who.Size
		}
		mcp.Progress(ctx, 3, 3, "done")
		return strings.Join([]string{id, roots[0].Name, thought.Text(), name}, " "), nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := decode[toolResult](t, c.Call("tools/call", map[string]any{"name": "plan", "_meta": map[string]any{"progressToken": "p"}}))
		want := "r1 work sampled nobody"
		if c.Since("2025-06-18") {
			want = "r1 work sampled Adas" // the defaults of the form, whether the client was told of them or not
		}
		if len(res.Content) != 1 || res.Content[0].Text != want {
			t.Errorf("got %+v, want %s", res, want)
		}
		if told := c.Await(3, "notifications/progress"); len(told) != 3 {
			t.Errorf("progress was told %d times, want 3", len(told))
		}
	})
}

func TestMRTR05_WhatAClientLacksIsTold(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := mcp.Roots(ctx)
		return "", err
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Capabilities: map[string]any{}}, func(t *testing.T, c *mcptest.Client) {
		_, err := c.Try("tools/call", map[string]any{"name": "roots"})
		if err == nil || string(err.Data) != `{"requiredCapabilities":{"roots":{}}}` {
			t.Fatalf("got %+v", err)
		}
		if c.Modern() && err.Code != mcp.CodeMissingRequiredClientCapability {
			t.Errorf("got code %d", err.Code)
		}
	})
}

func TestELI32_ARefusalReachesTheHandlerInBothEras(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "sure", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			_, err := mcp.Ask[bool](ctx, "a", "Sure?", nil)
			return fmt.Sprint(err), nil
		})
	decline := func(string, json.RawMessage) (any, error) { return map[string]any{"action": "decline"}, nil }
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Answer: decline}, func(t *testing.T, c *mcptest.Client) {
		if !c.Since("2025-06-18") {
			return
		}
		res := callTool(t, c, "sure", nil)
		if len(res.Content) != 1 || res.Content[0].Text != `question "a": mcp: declined by the user` {
			t.Errorf("got %+v", res)
		}
	})
}
