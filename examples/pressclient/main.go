// Command pressclient has examples/press print a book, which takes a while: it starts the work, and waits for it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// yes accepts what the server proposes. A real client asks its user here.
func yes(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
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
	fmt.Println("started", h.ID()) // to be kept, and given to tasks.Resume later, anywhere
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
