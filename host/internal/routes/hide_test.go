package routes_test

import (
	"context"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func TestHiddenArgumentsAreNotSent(t *testing.T) {
	lists := [catalogue.Kinds]*catalogue.List{catalogue.Tools: catalogue.Parse(catalogue.Tools,
		[]byte(`{"tools":[{"name":"buy","inputSchema":{"type":"object"}}]}`))}
	c := catalogue.Merge([]catalogue.Server{{Name: "shop", ID: "shop", Lists: lists,
		Options: &catalogue.ServerOptions{HideArgs: map[string][]string{"buy": {"key"}}}}}, &catalogue.Options{})
	item := c.Original(catalogue.Tools, "shop", "buy")
	if item == nil {
		t.Fatal("the tool is not in the catalogue")
	}
	before := &mcp.Request{Method: "tools/call", Params: []byte(`{"name":"buy","arguments":{"key":1,"n":2}}`)}
	var sent *mcp.Request
	_, err := routes.Stage{}.HideArgs(func(_ context.Context, c *call.Call) (mcp.Result, error) {
		sent = c.Request
		return nil, nil
	})(t.Context(), &call.Call{Item: item, Request: before})
	if want := `{"name":"buy","arguments":{"n":2}}`; err != nil || string(sent.Params) != want {
		t.Errorf("got %s, %v, want %s", sent.Params, err, want)
	}
	if string(before.Params) != `{"name":"buy","arguments":{"key":1,"n":2}}` {
		t.Errorf("the request of the caller was changed to %s", before.Params)
	}
}
