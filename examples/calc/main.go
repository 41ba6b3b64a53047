// Command calc is a minimal MCP server on stdio, with a tool that adds two numbers.
package main

import (
	"context"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type sum struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(_ context.Context, in sum) (int, error) { return in.A + in.B, nil }

func main() {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		log.Fatal(err)
	}
}
