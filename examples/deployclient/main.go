// Command deployclient calls the tool of examples/deploy, and asks the user in the terminal for the
// answers to its questions.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// ask shows a question with a yes/no answer, the form of mcp.Ask[bool]. Other forms have other fields in
// p.RequestedSchema.
func ask(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	fmt.Print(p.Message, " [yes/no/later] ")
	var answer string
	if _, err := fmt.Scanln(&answer); err != nil {
		return nil, err // the user could not be asked: the call fails
	}
	switch answer {
	case "yes":
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
	case "no":
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil // mcp.ErrDeclined at the server
	}
	return &mcp.ElicitResult{Action: mcp.ElicitCancel}, nil // mcp.ErrDismissed at the server
}

func run(ctx context.Context) error {
	server := mcp.Command("go", "run", "github.com/patchbay-mcp/patchbay/examples/deploy")
	c, err := mcp.Connect(ctx, server, &mcp.ClientOptions{Elicit: ask})
	if err != nil {
		return err
	}
	defer c.Close()
	result, err := mcp.CallTool[string](ctx, c, "deploy", map[string]any{"service": "shop"})
	if err != nil {
		return err
	}
	fmt.Println(result)
	return nil
}
