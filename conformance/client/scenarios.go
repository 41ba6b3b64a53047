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
	steps  func(ctx context.Context, c *mcp.Client) error
	elicit func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)
	auth   setup // nil for a server without authorization
	// isExpectedError reports whether an error is the expected one; nil if authorization must
	// succeed.
	isExpectedError func(error) bool
}

var scenarios = map[string]scenario{
	"initialize":                          {steps: ping},
	"tools_call":                          {steps: call("add_numbers", map[string]any{"a": 5, "b": 3})},
	"elicitation-sep1034-client-defaults": {steps: call("test_client_elicitation_defaults", nil), elicit: accept(`{}`)},
	"sse-retry":                           {steps: call("test_reconnection", nil)},
	"request-metadata":                    {steps: listTools},
	"json-schema-ref-no-deref":            {steps: listTools},
	"json-schema-2020-12-preservation":    {steps: echoSchema},
	"sep-2322-client-request-state":       {steps: answerInOrder, elicit: accept(`{"confirmed":true}`)},
	"http-standard-headers":               {steps: useAllFeatures},
	"http-custom-headers":                 {steps: callFromContext},
	"http-invalid-tool-headers":           {steps: callAllTools(map[string]any{"region": "us-west1"})},
	"sep-2640-client-no-prefetch":         {steps: listSkills},
	"sep-2640-client-verify-digest":       {steps: rejectSkills(skills.ErrDigest)},
	"sep-2640-client-verify-size":         {steps: rejectSkills(skills.ErrSize)},
	"sep-2640-client-verify-frontmatter":  {steps: rejectSkills(skills.ErrFrontmatter)},
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

// callAllTools calls every listed tool.
func callAllTools(args map[string]any) func(context.Context, *mcp.Client) error {
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

// answerInOrder calls the tools that send requests to the client, in the order that the suite
// requires.
func answerInOrder(ctx context.Context, c *mcp.Client) error {
	if err := listTools(ctx, c); err != nil {
		return err
	}
	for _, tool := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated",
		"test_mrtr_no_result_type"} {
		if _, err := c.CallTool(ctx, tool, nil); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// useAllFeatures lists all features of the server and uses each of them.
func useAllFeatures(ctx context.Context, c *mcp.Client) error {
	if err := callAllTools(nil)(ctx, c); err != nil {
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

// callFromContext makes the calls that the suite passes in the context.
func callFromContext(ctx context.Context, c *mcp.Client) error {
	var sc struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &sc); err != nil {
		return fmt.Errorf("invalid MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	if err := listTools(ctx, c); err != nil {
		return err
	}
	for _, call := range sc.ToolCalls {
		if _, err := c.CallTool(ctx, call.Name, call.Arguments); err != nil {
			return fmt.Errorf("%s: %w", call.Name, err)
		}
	}
	return nil
}
