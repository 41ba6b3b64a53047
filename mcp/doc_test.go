package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The tests of this file run the code of the doc comments.

type Sum = sum

// TestDocServer starts itself as the child process that serves.
func TestDocServer(t *testing.T) {
	const variable = "PATCHBAY_TEST_DOC_SERVER"
	ctx := t.Context()
	if os.Getenv(variable) != "" {
		s := mcp.NewServer("calc", "1.0.0", nil)
		mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."},
			func(ctx context.Context, in Sum) (int, error) { return in.A + in.B, nil })
		err := s.Run(ctx, mcp.Stdio())
		if err != nil {
			t.Error(err)
		}
		return
	}
	server := mcp.Command(os.Args[0], "-test.run=^TestDocServer$")
	server.Env = []string{variable + "=1"}
	c, err := mcp.Connect(ctx, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := mcp.CallTool[int](ctx, c, "add", Sum{1, 2}); err != nil || got != 3 {
		t.Errorf("got %d, %v", got, err)
	}
}

var _ driver.HeaderParamHandler[*mcp.Request] = (*mcp.Server)(nil)

type docOrder struct {
	Size  string `json:"size" jsonschema:"how large, roughly,enum=s|m|l,default=m"`
	Count int    `json:"count,omitempty" jsonschema:"how many,minimum=1,maximum=50"`
}

func TestDocSchema(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"size":{"type":"string","description":"how large, roughly","enum":["s","m","l"],"default":"m"},` +
		`"count":{"type":"integer","description":"how many","minimum":1,"maximum":50}},"additionalProperties":false}`
	got := decoded(t, jsonschema.For[docOrder]().JSON())
	if got := fmt.Sprint(got); got != fmt.Sprint(decoded(t, []byte(want))) {
		t.Errorf("got %s", jsonschema.For[docOrder]().JSON())
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDocAsk(t *testing.T) {
	s := mcp.NewServer("deployer", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "deploy"}, func(ctx context.Context, _ struct{}) (string, error) {
		ok, err := mcp.Ask[bool](ctx, "confirm", "Deploy to production?", nil)
		return fmt.Sprint(ok), err
	})
	opts := &mcptest.Options{Answer: func(string, json.RawMessage) (any, error) {
		return map[string]any{"action": "accept", "content": map[string]any{"value": true}}, nil
	}}
	mcptest.RunOn(t, s, mcptest.Since("2025-06-18"), opts, func(t *testing.T, c *mcptest.Client) {
		if got := string(c.Call("tools/call", map[string]any{"name": "deploy"})); !strings.Contains(got, `"text":"true"`) {
			t.Errorf("got %s", got)
		}
	})
}
