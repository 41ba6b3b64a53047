// Command fastmcp is the quick start server of FastMCP, in the official Python SDK, written with
// this SDK.
package main

import (
	"cmp"
	"context"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type sum struct {
	A int `json:"a"`
	B int `json:"b"`
}

func add(_ context.Context, in sum) (int, error) { return in.A + in.B, nil }

type person struct {
	Name string `json:"name"`
}

func greet(_ context.Context, in person) (string, error) { return "Hello, " + in.Name + "!", nil }

type welcome struct {
	Name  string `json:"name"`
	Style string `json:"style" jsonschema:"default=friendly"`
}

var styles = map[string]string{
	"friendly": "Write a friendly greeting",
	"formal":   "Write a formal greeting",
	"casual":   "Write a casual greeting",
}

func greetUser(_ context.Context, in welcome) (string, error) {
	return cmp.Or(styles[in.Style], styles["friendly"]) + " for " + in.Name + ".", nil
}

func newServer() *mcp.Server {
	s := mcp.NewServer("Demo", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "greeting://{name}", Name: "get_greeting"}, greet)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet_user", Description: "Ask for a greeting."}, greetUser)
	return s
}

func main() {
	h := mcphttp.NewHandler(newServer(), nil)
	log.Fatal(mcphttp.ListenAndServe(context.Background(), "127.0.0.1:8000", "/mcp", h))
}
