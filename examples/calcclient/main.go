// Calcclient starts the server of ../calc as a child process, lists its tools and calls one.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func main() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.Command("go", "run", "github.com/patchbay-mcp/patchbay/examples/calc"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tool.Name, "-", tool.Description)
	}
	sum, err := mcp.Call[int](ctx, c, "add", map[string]any{"a": 1, "b": 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("1 + 2 =", sum)
}
