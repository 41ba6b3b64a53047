package host_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The policy may be replaced while a view opens its first subscription and ends its last.
func TestPolicyIsReplacedWhileSubscriptionsEnd(t *testing.T) {
	h := newHostWith(t, map[string]mcp.Handler{"a": simpleServer("a")}, host.Options{})
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "subscriptions/listen",
		Params: json.RawMessage(`{"notifications":{"toolsListChanged":true},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
			`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	req.Notify = func(context.Context, string, json.RawMessage) error { return nil }
	view := h.For(&policy.Caller{})
	const rounds = 5000
	var both sync.WaitGroup
	both.Go(func() {
		for n := range rounds {
			h.SetPolicy(epochPolicy{policyFunc(func(*policy.Action) policy.Decision {
				return policy.Decision{Do: policy.OutcomeAllow}
			}), uint64(n)})
		}
	})
	both.Go(func() {
		for range rounds {
			stop, err := view.Listen(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			stop()
		}
	})
	both.Wait()
}
