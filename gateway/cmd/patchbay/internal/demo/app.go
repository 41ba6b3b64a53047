package demo

import (
	"context"
	_ "embed"
	"math/rand/v2"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed dice.html
var diceHTML string

// addApp adds an MCP App: a tool whose result hosts show in an HTML page, which can call it again.
func addApp(s *mcp.Server) {
	const page = "ui://demo/dice"
	views := apps.New(s)
	views.Add(&apps.View{
		URI: page, Name: "dice", Title: "Dice", Description: "Shows the dice, and rolls them again.",
	}, diceHTML)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{
		Name: "roll_dice", Title: "Roll dice", Description: "Roll dice. Hosts with MCP Apps show them.",
		Annotations: readOnly(),
	}, &apps.ToolUI{View: page}), rollDice)
}

type diceInput struct {
	Sides int `json:"sides,omitempty" jsonschema:"number of sides of a die,minimum=2,maximum=100,default=6"`
	Count int `json:"count,omitempty" jsonschema:"number of dice,minimum=1,maximum=20,default=1"`
}

type diceOutput struct {
	Rolls []int `json:"rolls"`
	Total int   `json:"total"`
}

func rollDice(_ context.Context, in diceInput) (diceOutput, error) {
	var out diceOutput
	for range in.Count {
		n := rand.IntN(in.Sides) + 1
		out.Rolls = append(out.Rolls, n)
		out.Total += n
	}
	return out, nil
}
