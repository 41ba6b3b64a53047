package conformance_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type hotelAddress struct {
	Street string `json:"street"`
	Zip    string `json:"zip" jsonschema:"pattern=^[0-9]{5}$"`
}

type hotelBooking struct {
	Guest  string       `json:"guest" jsonschema:"full name"`
	Home   hotelAddress `json:"home"`
	Nights int          `json:"nights,omitempty" jsonschema:"minimum=1,maximum=30,default=1"`
	Extras []string     `json:"extras,omitempty" jsonschema:"such as breakfast"`
}

type hotelRoom struct {
	Room  int    `json:"room"`
	View  string `json:"view"`
	Price int    `json:"price"`
}

// startHotel starts a server with nested arguments and a list of objects, and returns its URL.
func startHotel(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer("hotel", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book", Description: "Book a room."},
		func(_ context.Context, in hotelBooking) (hotelBooking, error) { return in, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "rooms", Description: "List free rooms."},
		func(context.Context, struct{}) ([]hotelRoom, error) {
			return []hotelRoom{{101, "sea", 140}, {204, "garden", 95}, {305, "street", 70}}, nil
		})
	server := httptest.NewServer(mcphttp.NewHandler(s, nil))
	t.Cleanup(server.Close)
	return server.URL + "/mcp"
}
