package demo

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func addPrompts(s *mcp.Server) {
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review", Title: "Review code", Description: "Ask for a code review."}, review)
}

// The values of an enum are completed.
type reviewInput struct {
	Language string `json:"language" jsonschema:"programming language,enum=go|python|rust|typescript"`
	Code     string `json:"code" jsonschema:"code to review"`
}

func review(_ context.Context, in reviewInput) (string, error) {
	return fmt.Sprintf("Review this %s code. Name the worst problem first.\n\n%s", in.Language, in.Code), nil
}
