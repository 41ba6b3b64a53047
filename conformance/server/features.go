package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// addTriggers adds the tools that change the lists of the server. The change lasts for some time: a
// gateway notifies clients only of lists that differ.
func addTriggers(s *mcp.Server, lasts time.Duration) {
	var tools, prompts atomic.Int64
	mcp.AddTool(s, &mcp.Tool{Name: "test_trigger_tool_change", Description: "Change the list of tools."},
		func(context.Context, none) (string, error) {
			name := fmt.Sprintf("z_transient_%d", tools.Add(1))
			added := mcp.AddTool(s, &mcp.Tool{Name: name, Description: "Removed soon."},
				func(context.Context, none) (string, error) { return "called", nil })
			time.AfterFunc(lasts, added.Remove)
			return "changed", nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_trigger_prompt_change", Description: "Change the list of prompts."},
		func(context.Context, none) (string, error) {
			name := fmt.Sprintf("z_transient_%d", prompts.Add(1))
			added := mcp.AddPrompt(s, &mcp.Prompt{Name: name, Description: "Removed soon."},
				func(context.Context, none) (string, error) { return "called", nil })
			time.AfterFunc(lasts, added.Remove)
			return "changed", nil
		})
}

func addResources(s *mcp.Server) {
	mcp.AddResource(s, &mcp.Resource{URI: "test://static-text", Name: "static-text", MIMEType: "text/plain",
		Description: "A constant text."},
		func(context.Context, string) (string, error) {
			return "This is the content of the static text resource.", nil
		})
	mcp.AddResource(s, &mcp.Resource{URI: "test://static-binary", Name: "static-binary", MIMEType: "image/png",
		Description: "A constant image."},
		func(context.Context, string) ([]byte, error) { return pixel, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "test://watched-resource", Name: "watched-resource", MIMEType: "text/plain",
		Description: "A resource to subscribe to."},
		func(context.Context, string) (string, error) { return "watched", nil })
	type vars struct {
		ID string `json:"id"`
	}
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template",
		MIMEType: "application/json", Description: "Data with an id."},
		func(_ context.Context, v vars) (string, error) {
			return fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, v.ID, v.ID), nil
		})
}

func addPrompts(s *mcp.Server) {
	mcp.AddPrompt(s, &mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt without arguments."},
		func(context.Context, none) (string, error) { return "This is a simple prompt for testing.", nil })
	type two struct {
		Arg1 string `json:"arg1" jsonschema:"first test argument"`
		Arg2 string `json:"arg2" jsonschema:"second test argument"`
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "test_prompt_with_arguments", Description: "A prompt with two arguments.",
		Complete: map[string]mcp.CompleteFunc{"arg1": suggest}},
		func(_ context.Context, in two) (string, error) {
			return fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", in.Arg1, in.Arg2), nil
		})
	type resource struct {
		URI string `json:"resourceUri" jsonschema:"the URI of the resource to embed"`
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "test_prompt_with_embedded_resource", Description: "A prompt with a resource."},
		func(_ context.Context, in resource) ([]mcp.PromptMessage, error) {
			return []mcp.PromptMessage{
				{Role: mcp.RoleUser, Content: embedded(in.URI, "text/plain", "Embedded resource content for testing.")},
				{Role: mcp.RoleUser, Content: mcp.Text("Please process the embedded resource above.")},
			}, nil
		})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "test_prompt_with_image", Description: "A prompt with an image."},
		func(context.Context, none) ([]mcp.PromptMessage, error) {
			return []mcp.PromptMessage{
				{Role: mcp.RoleUser, Content: &mcp.ImageContent{Data: pixel, MIMEType: "image/png"}},
				{Role: mcp.RoleUser, Content: mcp.Text("Please analyze the image above.")},
			}, nil
		})
}

func suggest(_ context.Context, value string, _ map[string]string) ([]string, error) {
	return []string{value + "ing", value + "ed"}, nil
}
