package legacy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Responses do not share memory with later requests, since a stream may write them later.
func TestResponsesDoNotAliasLaterRequests(t *testing.T) {
	core := &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		arguments, _ := jsonscan.Get(req.Params, "arguments")
		if text, _ := jsonscan.Get(req.Params, "name"); string(text) == `"fail"` {
			return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "no", Data: arguments}}
		}
		return &jsonrpc.Message{ID: req.ID, Result: fmt.Appendf(nil, `{"resultType":"complete","content":[],"structuredContent":%s}`, arguments)}
	}}
	c := connect(t, "2025-11-25", core)
	const n = 20
	ask := func(i int, name string) {
		c.session.Handle(c.Context(), message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"n":"%s"}}}`,
			i, name, strings.Repeat(string(rune('a'+i)), 10))), c.out.write)
	}
	for i := range n {
		ask(i, [...]string{"fail", "succeed"}[i%2])
	}
	for i, line := range c.out.take() { // encoded after all requests
		if want := strings.Repeat(string(rune('a'+i)), 10); !strings.Contains(line, want) {
			t.Errorf("response to request %d changed to %s", i, line)
		}
	}
}
