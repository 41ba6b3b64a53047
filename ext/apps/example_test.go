package apps_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const dieHTML = `<!DOCTYPE html>
<title>die</title>
<p id="eyes"></p>`

// newDice returns a server with a tool that has a view.
func newDice() *mcp.Server {
	s := mcp.NewServer("dice", "1.0.0", nil)
	views := apps.New(s)
	views.Add(&apps.View{URI: "ui://dice/die", Name: "die"}, dieHTML)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "roll"}, &apps.ToolUI{View: "ui://dice/die"}),
		func(context.Context, struct{}) (string, error) { return "four", nil })
	mcp.AddTool(s,
		views.WithUI(&mcp.Tool{Name: "reroll"}, &apps.ToolUI{Visibility: []apps.Visibility{apps.VisibilityApp}}),
		func(context.Context, struct{}) (string, error) { return "six", nil })
	return s
}

func Example() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newDice()), apps.Declare(nil))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	h := apps.NewHost(c, &apps.HostOptions{Logger: slog.New(slog.DiscardHandler)})

	tools, err := h.ModelTools(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tools {
		fmt.Println("for the model:", t.Name)
	}
	page, err := h.Page(ctx, "roll")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("show:", page.URI, "with", apps.Sandbox)
	// Output:
	// for the model: roll
	// show: ui://dice/die with allow-scripts allow-forms
}

func ExampleHost_Bridge() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newDice()), apps.Declare(nil))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	h := apps.NewHost(c, &apps.HostOptions{Logger: slog.New(slog.DiscardHandler)})
	page, err := h.Page(ctx, "roll")
	if err != nil {
		log.Fatal(err)
	}
	b := h.Bridge(page, &apps.BridgeOptions{
		Send: func(_ context.Context, m json.RawMessage) error {
			fmt.Println("to the page:", string(m)) // a host posts it to the frame
			return nil
		},
		AllowTool: func(_ context.Context, t *mcp.Tool, _ json.RawMessage) error {
			if t.Name != "reroll" {
				return errors.New("the user did not consent") // a host asks
			}
			return nil
		},
	})
	result, err := c.CallTool(ctx, "roll", nil)
	if err := errors.Join(err, b.ToolInput(ctx, nil), b.ToolResult(ctx, result)); err != nil {
		log.Fatal(err)
	}
	for _, m := range []string{ // what the page posts
		`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{}}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reroll"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"roll"}}`,
	} {
		if answer := b.Handle(ctx, json.RawMessage(m)); answer != nil && len(answer) < 120 {
			fmt.Println("answer:", string(answer))
		}
	}
	// Output:
	// to the page: {"jsonrpc":"2.0","method":"ui/notifications/tool-input","params":{"arguments":{}}}
	// to the page: {"jsonrpc":"2.0","method":"ui/notifications/tool-result","params":{"content":[{"type":"text","text":"four"}]}}
	// answer: {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"six"}]}}
	// answer: {"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"the host refused"}}
}

func ExampleSupported() {
	s := mcp.NewServer("report", "1.0.0", nil)
	views := apps.New(s)
	views.Add(&apps.View{URI: "ui://report/table", Name: "table"}, "<!DOCTYPE html><table></table>")
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "report"}, &apps.ToolUI{View: "ui://report/table"}),
		func(ctx context.Context, _ struct{}) (string, error) {
			if apps.Supported(ctx) {
				return "3 rows, which the user sees", nil
			}
			return "a: 1\nb: 2\nc: 3", nil
		})
	for _, opts := range []*mcp.ClientOptions{nil, apps.Declare(nil)} {
		c, err := mcp.Connect(context.Background(), mcp.InMemory(s), opts)
		if err != nil {
			log.Fatal(err)
		}
		text, err := mcp.CallTool[string](context.Background(), c, "report", nil)
		fmt.Printf("%q %v\n", text, err)
		c.Close()
	}
	// Output:
	// "a: 1\nb: 2\nc: 3" <nil>
	// "3 rows, which the user sees" <nil>
}
