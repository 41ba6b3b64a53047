package servercard_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

const schema = `"$schema":"https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"`

// minimal is a card with the required members only.
const minimal = `{` + schema + `,"name":"com.example/weather","version":"1.0.0","description":"Forecasts"}`

// weather returns a card with an endpoint.
func weather() *servercard.Card {
	return &servercard.Card{Name: "com.example/weather", Version: "1.0.0", Description: "Forecasts",
		Remotes: []servercard.Remote{{Type: servercard.StreamableHTTP, URL: "https://mcp.example.com/mcp"}}}
}
