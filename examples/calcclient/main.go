// Command calcclient starts examples/calc as a child process, lists its tools and calls a tool.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := mcp.Connect(ctx, mcp.Command("go", "run", "github.com/patchbay-mcp/patchbay/examples/calc"), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(tool.Name, "-", tool.Description)
	}
	sum, err := mcp.CallTool[int](ctx, c, "add", map[string]any{"a": 1, "b": 2})
	fmt.Println("1 + 2 =", sum)
	return err
}
