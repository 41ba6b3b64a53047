package mcp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A type without tags decodes as with encoding/json.
func TestCallToolMatchesNamesInAnyCase(t *testing.T) {
	type receipt struct {
		ID    int    `json:"id"`
		Owner string `json:"ownerName"`
	}
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "buy"}, func(context.Context, struct{}) (receipt, error) {
		return receipt{7, "Ada"}, nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := mcp.CallTool[struct {
		ID        int
		OwnerName string
	}](t.Context(), c, "buy", nil)
	if err != nil || got.ID != 7 || got.OwnerName != "Ada" {
		t.Errorf("got %+v, %v", got, err)
	}
}
