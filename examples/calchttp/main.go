// Command calchttp serves the tool of examples/calc over HTTP, to clients of every revision.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type sum struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(_ context.Context, in sum) (int, error) { return in.A + in.B, nil }

func main() {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	http.Handle("/mcp", mcphttp.NewHandler(s, nil))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
