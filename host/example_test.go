package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// model chooses a tool for a task, as the interface of a language model does.
func model(_ string, tools []*mcp.Tool) (tool string, arguments map[string]any) {
	return tools[0].Name, map[string]any{"A": 19, "B": 23}
}

// An agent offers the tools of all servers to a model, and asks the user before each call.
func Example() {
	ctx := context.Background()
	file, err := config.Parse([]byte(`{"mcpServers": {"calc": {"command": "calc"}, "shop": {"command": "shop"}}}`))
	if err != nil {
		log.Fatal(err)
	}
	h, err := host.Open(ctx, file, &host.Options{
		Consent: func(_ context.Context, a *policy.Action) (*approval.Verdict, error) {
			fmt.Printf("allow %s of %s with %s?\n", a.Target, a.Server, a.Arguments)
			return &approval.Verdict{Allow: true}, nil
		},
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) { // in place of processes
			return mcp.InMemory(newServer(s.Command)), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	tools, err := h.Tools(ctx)
	if err != nil {
		log.Fatal(err)
	}
	tool, arguments := model("What is 19 + 23?", tools)
	result, err := h.Call(ctx, tool, arguments)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tool, "returned", result.Text())
	// Output:
	// allow add of calc with {"A":19,"B":23}?
	// calc__add returned calc42
}
