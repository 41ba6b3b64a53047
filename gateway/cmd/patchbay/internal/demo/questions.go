package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// addQuestions adds the tools that ask the client: elicitation (the user) or sampling (a model).
func addQuestions(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{
		Name: "greet", Title: "Greet", Description: "Greet by name. Asks the user for a missing name (elicitation).",
		Annotations: readOnly(),
	}, greet)
	mcp.AddTool(s, &mcp.Tool{
		Name: "deploy", Title: "Deploy", Description: "Pretend to deploy, after the user confirms (elicitation).",
		Annotations: additive(),
	}, deploy)
	mcp.AddTool(s, &mcp.Tool{
		Name: "summarize", Title: "Summarize", Description: "Have the client's model summarize a text (sampling).",
		Annotations: readOnly(),
	}, summarize)
}

type greetInput struct {
	Name string `json:"name,omitempty" jsonschema:"name to greet; the user is asked if it is missing"`
}

type profile struct {
	Name string `json:"name" jsonschema:"your name,minLength=1"`
}

func greet(ctx context.Context, in greetInput) (string, error) {
	if in.Name == "" {
		p, err := mcp.Ask[profile](ctx, "profile", "What is your name?", nil)
		if errors.Is(err, mcp.ErrDeclined) {
			return "Hello!", nil
		}
		if err != nil {
			return "", err
		}
		in.Name = p.Name
	}
	return "Hello, " + in.Name + "!", nil
}

type deployInput struct {
	Environment string `json:"environment" jsonschema:"where to deploy,enum=staging|production"`
}

type deployOutput struct {
	Release     string `json:"release"`
	Environment string `json:"environment"`
}

// deploy may run twice: to ask, a handler of the newest revision returns, and is called again with
// the answer. mcp.Once runs its function in the first call only.
func deploy(ctx context.Context, in deployInput) (deployOutput, error) {
	release, err := mcp.Once(ctx, "release", func(context.Context) (string, error) {
		return fmt.Sprintf("r%04d", rand.IntN(10_000)), nil
	})
	if err != nil {
		return deployOutput{}, err
	}
	ok, err := mcp.Ask[bool](ctx, "confirm", fmt.Sprintf("Deploy %s to %s?", release, in.Environment), nil)
	if err != nil {
		return deployOutput{}, err
	}
	if !ok {
		return deployOutput{}, errors.New("the user did not confirm")
	}
	return deployOutput{Release: release, Environment: in.Environment}, nil
}

type summarizeInput struct {
	Text string `json:"text" jsonschema:"text to summarize,maxLength=10000"`
}

func summarize(ctx context.Context, in summarizeInput) (string, error) {
	r, err := mcp.Sample(ctx, "summary", &mcp.CreateMessageParams{
		SystemPrompt: "Summarize in one sentence.",
		Messages:     []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text(in.Text)}}},
		MaxTokens:    200,
	})
	if err != nil {
		return "", err
	}
	return r.Text(), nil
}
