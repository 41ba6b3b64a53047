package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type confirmation struct {
	OK bool `json:"ok" jsonschema:"whether to continue"`
}

// addInputRequired adds the fixtures of multi round-trip requests. They are ordinary handlers: the
// server handles the round trips.
func addInputRequired(s *mcp.Server) {
	tool := func(name, description string, f func(context.Context, none) (string, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: "test_input_required_result_" + name, Description: description}, f)
	}
	tool("elicitation", "Ask for a name.", func(ctx context.Context, _ none) (string, error) {
		user, err := mcp.Ask[userName](ctx, "user_name", "What is your name?", nil)
		return "Hello, " + user.Name + "!", err
	})
	tool("sampling", "Ask the model.", func(ctx context.Context, _ none) (string, error) {
		res, err := mcp.Sample(ctx, "capital_question", samplingOf("What is the capital of France?"))
		if err != nil {
			return "", err
		}
		return textOf(res), nil
	})
	tool("list_roots", "Ask for the roots.", func(ctx context.Context, _ none) (string, error) {
		var roots []mcp.Root
		err := mcp.AskAll(ctx, mcp.RootsQuestion("client_roots", &roots))
		return fmt.Sprintf("%d roots", len(roots)), err
	})
	tool("request_state", "Ask with state.", func(ctx context.Context, _ none) (string, error) {
		if _, err := mcp.Ask[confirmation](ctx, "confirm", "Continue?", nil); err != nil {
			return "", err
		}
		return "state-ok", nil
	})
	tool("tampered_state", "Ask with state that must not be changed.",
		func(ctx context.Context, _ none) (string, error) {
			if _, err := mcp.Ask[confirmation](ctx, "confirm", "Continue?", nil); err != nil {
				return "", err
			}
			return "state-ok", nil
		})
	tool("multi_round", "Ask twice.", func(ctx context.Context, _ none) (string, error) {
		user, err := mcp.Ask[userName](ctx, "step1", "Step 1: what is your name?", nil)
		if err != nil {
			return "", err
		}
		color, err := mcp.Ask[favorite](ctx, "step2", "Step 2: what is your favorite color?", nil)
		return user.Name + " likes " + color.Color, err
	})
	tool("multiple_inputs", "Ask three questions at once.", askThree)
	tool("capabilities", "Ask only with a capability of the client.", askDeclared)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "test_input_required_result_prompt", Description: "Ask before answering."},
		func(ctx context.Context, _ none) (string, error) {
			user, err := mcp.Ask[background](ctx, "user_context", "Which facts about you should the prompt have?", nil)
			return "Consider: " + user.Context, err
		})
}

type favorite struct {
	Color string `json:"color" jsonschema:"your favorite color"`
}

type background struct {
	Context string `json:"context" jsonschema:"facts about you"`
}

func askThree(ctx context.Context, _ none) (string, error) {
	var user userName
	var greeting *mcp.CreateMessageResult
	var roots []mcp.Root
	err := mcp.AskAll(ctx,
		mcp.FormQuestion("user_name", "What is your name?", &user, nil),
		mcp.SampleQuestion("greeting", samplingOf("Write a greeting."), &greeting),
		mcp.RootsQuestion("client_roots", &roots))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s (%d roots)", user.Name, textOf(greeting), len(roots)), nil
}

// askDeclared sends a request for a capability that the client has declared.
func askDeclared(ctx context.Context, _ none) (string, error) {
	user, err := mcp.Ask[userName](ctx, "user_name", "What is your name?", nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		return user.Name, err
	}
	res, err := mcp.Sample(ctx, "name", samplingOf("Invent a name."))
	if err != nil {
		return "", err
	}
	return textOf(res), nil
}
