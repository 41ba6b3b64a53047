package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A scenario consists of the client's requests and the user's responses.
type scenario struct {
	play   func(ctx context.Context, c *mcp.Client) error
	elicit func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)
	auth   setup // nil for a server without authorization
	// givesUp reports whether an error is the expected reason to stop; nil if authorization must
	// succeed.
	givesUp func(error) bool
}

var scenarios = map[string]scenario{
	"initialize":                          {play: ping},
	"tools_call":                          {play: call("add_numbers", map[string]any{"a": 5, "b": 3})},
	"elicitation-sep1034-client-defaults": {play: call("test_client_elicitation_defaults", nil), elicit: accept(`{}`)},
	"sse-retry":                           {play: call("test_reconnection", nil)},
	"request-metadata":                    {play: listTools},
	"json-schema-ref-no-deref":            {play: listTools},
	"json-schema-2020-12-preservation":    {play: echoSchema},
	"sep-2322-client-request-state":       {play: answerInTurn, elicit: accept(`{"confirmed":true}`)},
	"http-standard-headers":               {play: useEverything},
	"http-custom-headers":                 {play: callAsTold},
	"http-invalid-tool-headers":           {play: callEvery(map[string]any{"region": "us-west1"})},
	"sep-2640-client-no-prefetch":         {play: listSkills},
	"sep-2640-client-verify-digest":       {play: refuseSkills(skills.ErrDigest)},
	"sep-2640-client-verify-size":         {play: refuseSkills(skills.ErrSize)},
	"sep-2640-client-verify-frontmatter":  {play: refuseSkills(skills.ErrFrontmatter)},
}

// accept returns a user who accepts every form with the given content.
func accept(content string) func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(content)}, nil
	}
}

func ping(ctx context.Context, c *mcp.Client) error { return c.Ping(ctx) }

func listTools(ctx context.Context, c *mcp.Client) error {
	for _, err := range c.Tools(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// call lists the tools, as hosts do, and calls one.
func call(tool string, args map[string]any) func(context.Context, *mcp.Client) error {
	return func(ctx context.Context, c *mcp.Client) error {
		if err := listTools(ctx, c); err != nil {
			return err
		}
		_, err := mcp.CallTool[*mcp.CallToolResult](ctx, c, tool, args)
		return err
	}
}

// callEvery calls every listed tool.
func callEvery(args map[string]any) func(context.Context, *mcp.Client) error {
	return func(ctx context.Context, c *mcp.Client) error {
		for tool, err := range c.Tools(ctx) {
			if err != nil {
				return err
			}
			if _, err := c.CallTool(ctx, tool.Name, args); err != nil {
				return err
			}
		}
		return nil
	}
}

// echoSchema sends the schema of a tool back unchanged.
func echoSchema(ctx context.Context, c *mcp.Client) error {
	var schema json.RawMessage
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return err
		}
		if tool.Name == "json_schema_2020_12_tool" {
			schema = tool.InputSchema
		}
	}
	if schema == nil {
		return errors.New("the server has no json_schema_2020_12_tool")
	}
	_, err := mcp.CallTool[*mcp.CallToolResult](ctx, c, "json_schema_echo", map[string]any{"schema": schema})
	return err
}

// answerInTurn calls the tools that send requests to the client, in the order that the suite
// requires.
func answerInTurn(ctx context.Context, c *mcp.Client) error {
	if err := listTools(ctx, c); err != nil {
		return err
	}
	for _, tool := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
		if _, err := c.CallTool(ctx, tool, nil); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// useEverything lists all features of the server and uses each of them.
func useEverything(ctx context.Context, c *mcp.Client) error {
	if err := callEvery(nil)(ctx, c); err != nil {
		return err
	}
	for resource, err := range c.Resources(ctx) {
		if err != nil {
			return err
		}
		if _, err := c.ReadResource(ctx, resource.URI); err != nil {
			return err
		}
	}
	for prompt, err := range c.Prompts(ctx) {
		if err != nil {
			return err
		}
		if _, err := c.GetPrompt(ctx, prompt.Name, nil); err != nil {
			return err
		}
	}
	return nil
}

// callAsTold makes the calls that the suite passes in the context.
func callAsTold(ctx context.Context, c *mcp.Client) error {
	var told struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &told); err != nil {
		return fmt.Errorf("the context of the scenario: %w", err)
	}
	if err := listTools(ctx, c); err != nil {
		return err
	}
	for _, call := range told.ToolCalls {
		if _, err := c.CallTool(ctx, call.Name, call.Arguments); err != nil {
			return fmt.Errorf("%s: %w", call.Name, err)
		}
	}
	return nil
}
