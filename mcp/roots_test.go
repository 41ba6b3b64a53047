package mcp_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestRootsReturnsTheRootsOfTheClient(t *testing.T) {
	var got []mcp.Root
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (_ string, err error) {
		got, err = mcp.Roots(ctx)
		return "done", err
	})
	r := p.call("t", "", "", "")
	if q := r.InputRequests["roots"]; q.Method != "roots/list" || string(q.Params) != "{}" {
		t.Fatalf("got %+v, want a roots/list request with empty params", r)
	}
	for answer, want := range map[string][]mcp.Root{
		`{"roots":[]}`: {},
		`{"roots":[{"uri":"file:///src","name":"src","_meta":{"k":"v"}},{"uri":"file://host/x%20y","more":1}]}`: {
			{URI: "file:///src", Name: "src", Meta: mcp.Meta{"k": "v"}}, {URI: "file://host/x%20y"}},
	} {
		if r := p.call("t", "", `{"roots":`+answer+`}`, r.RequestState); r.text() != "done" {
			t.Errorf("got %+v, want the text \"done\"", r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
