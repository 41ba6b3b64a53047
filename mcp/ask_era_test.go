package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestHandlersAskInEveryRevision(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "plan"}, func(ctx context.Context, _ struct{}) (string, error) {
		mcp.Progress(ctx, 1, 3, "started")
		id, err := mcp.Once(ctx, "id", func(context.Context) (string, error) { return "r1", nil })
		if err != nil {
			return "", err
		}
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		mcp.Progress(ctx, 2, 3, "found")
		thought, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 9,
			Messages: []mcp.SamplingMessage{
				samplingMessage(mcp.RoleUser, mcp.Text("Think of "+id), mcp.Text("in "+roots[0].Name))}})
		if err != nil {
			return "", err
		}
		name := "unknown"
		if mcp.RequestFrom(ctx).Capabilities().Elicitation != nil {
			who, err := mcp.Ask[struct {
				Name string `json:"name" jsonschema:"your name,default=Ada"`
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
		res := decode[toolResult](t, c.Call("tools/call", map[string]any{"name": "plan",
			"_meta": map[string]any{"progressToken": "p"}}))
		want := "r1 work sampled unknown"
		if c.Since("2025-06-18") {
			want = "r1 work sampled Adas" // the defaults of the form
		}
		if len(res.Content) != 1 || res.Content[0].Text != want {
			t.Errorf("got %+v, want %s", res, want)
		}
		if notes := c.Await(3, "notifications/progress"); len(notes) != 3 {
			t.Errorf("got %d progress notifications, want 3", len(notes))
		}
	})
}

// Requirement: MRTR-05, META-12
func TestErrorNamesTheRequiredCapability(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := mcp.Roots(ctx)
		return "", err
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Capabilities: map[string]any{}},
		func(t *testing.T, c *mcptest.Client) {
			_, err := c.Try("tools/call", map[string]any{"name": "roots"})
			if err == nil || string(err.Data) != `{"requiredCapabilities":{"roots":{}}}` {
				t.Fatalf("got error %+v, want data with the required capability roots", err)
			}
			if c.Modern() {
				wantCode(t, "roots", err, driver.CodeMissingRequiredClientCapability)
			}
		})
}

// Requirement: ELI-32
func TestDeclineReachesTheHandler(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "sure", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			_, err := mcp.Ask[bool](ctx, "a", "Sure?", nil)
			return fmt.Sprint(err), nil
		})
	decline := func(string, json.RawMessage) (any, error) { return map[string]any{"action": "decline"}, nil }
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Answer: decline},
		func(t *testing.T, c *mcptest.Client) {
			if !c.Since("2025-06-18") {
				return
			}
			res := callTool(t, c, "sure", nil)
			if len(res.Content) != 1 || res.Content[0].Text != `question "a": mcp: declined by the user` {
				t.Errorf("got %+v, want the error of a declined question", res)
			}
		})
}
