package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type userName struct {
	Name string `json:"name" jsonschema:"your name"`
}

type contact struct {
	Username string `json:"username" jsonschema:"your user name"`
	Email    string `json:"email" jsonschema:"your e-mail address"`
}

type defaults struct {
	Name     string  `json:"name,omitempty" jsonschema:"user name,default=John Doe"`
	Age      int     `json:"age,omitempty" jsonschema:"user age,default=30"`
	Score    float64 `json:"score,omitempty" jsonschema:"user score,default=95.5"`
	Status   string  `json:"status,omitempty" jsonschema:"user status,enum=active|inactive|pending,default=active"`
	Verified bool    `json:"verified,omitempty" jsonschema:"whether the user is verified,default=true"`
}

const enumForms = `{
  "type": "object",
  "properties": {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": [
      {"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"},
      {"const": "value3", "title": "Third Option"}]},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
      "enumNames": ["Option One", "Option Two", "Option Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": [
      {"const": "value1", "title": "First Choice"}, {"const": "value2", "title": "Second Choice"},
      {"const": "value3", "title": "Third Choice"}]}}
  }
}`

// addQuestionTools adds the tools that send requests to the client.
func addQuestionTools(s *mcp.Server) {
	type promptIn struct {
		Prompt string `json:"prompt,omitempty" jsonschema:"the prompt for the model"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_sampling", Description: "Ask the client's model."},
		func(ctx context.Context, in promptIn) (string, error) {
			res, err := mcp.Sample(ctx, "sample", samplingOf(in.Prompt))
			if err != nil {
				return "", err
			}
			return "LLM response: " + textOf(res), nil
		})
	type messageIn struct {
		Message string `json:"message,omitempty" jsonschema:"the question to the user"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_elicitation", Description: "Ask the client's user."},
		func(ctx context.Context, in messageIn) (string, error) {
			return formatAnswer(mcp.Ask[contact](ctx, "contact", in.Message, nil))
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_elicitation_sep1034_defaults",
		Description: "Ask with defaults of every type."},
		func(ctx context.Context, _ none) (string, error) {
			return formatAnswer(mcp.Ask[defaults](ctx, "defaults", "Please review the defaults.", nil))
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_elicitation_sep1330_enums", Description: "Ask with enums of every form."},
		func(ctx context.Context, _ none) (string, error) {
			return formatAnswer(mcp.Ask[map[string]any](ctx, "enums", "Please choose.",
				&mcp.AskOptions{Schema: json.RawMessage(enumForms)}))
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_missing_capability", Description: "Require the sampling capability."},
		func(ctx context.Context, _ none) (string, error) {
			res, err := mcp.Sample(ctx, "sample", samplingOf("Say hello."))
			if err != nil {
				return "", err
			}
			return textOf(res), nil
		})
}

// formatAnswer returns the answer to a request as text.
func formatAnswer(answer any, err error) (string, error) {
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(answer)
	return fmt.Sprintf("User response: %s", b), err
}

func samplingOf(text string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text(text)}}},
		MaxTokens: 100,
	}
}

func textOf(res *mcp.CreateMessageResult) string {
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			return text.Text
		}
	}
	return ""
}
