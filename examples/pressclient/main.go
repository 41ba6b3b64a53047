// Command pressclient starts a long-running tool of examples/press as a task, and waits for the
// result.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// yes accepts every question. A real client asks its user.
func yes(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	fmt.Println(p.Message, "yes")
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
}

func run(ctx context.Context) error {
	c, err := mcp.Connect(ctx, mcphttp.NewTransport("http://127.0.0.1:8080/mcp", nil),
		tasks.Declare(&mcp.ClientOptions{Elicit: yes}, nil))
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := tasks.Start(ctx, c, "print", map[string]any{"title": "Emma", "pages": 3})
	if err != nil {
		return err
	}
	fmt.Println("started", h.ID()) // store the ID to continue with tasks.Resume in another process
	result, err := h.Wait(ctx)
	if err != nil {
		return err
	}
	fmt.Println(result.Text())
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
