// Command deploy is an MCP server on stdio whose tool asks the user before it acts (elicitation).
package main

import (
	"context"
	"errors"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type deployment struct {
	Service string `json:"service" jsonschema:"name of the service"`
}

func deploy(ctx context.Context, in deployment) (string, error) {
	ok, err := mcp.Ask[bool](ctx, "confirm", "Deploy "+in.Service+" to production?", nil)
	if errors.Is(err, mcp.ErrDeclined) || err == nil && !ok {
		return in.Service + " was not deployed.", nil
	}
	if err != nil {
		return "", err // the question is open, was dismissed, or cannot be asked
	}
	return in.Service + " is deployed.", nil
}

func main() {
	s := mcp.NewServer("deploy", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "deploy", Description: "Deploy a service to production."}, deploy)
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		log.Fatal(err)
	}
}
