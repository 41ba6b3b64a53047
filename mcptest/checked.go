package mcptest

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A checker validates the messages that a server sends to an [mcp.Client].
type checker struct {
	t       testing.TB
	on      Combination
	schema  *Schema
	methods map[jsonrpc.ID]string // of requests without a response
}

// checkedTransport returns a client's transport to h whose messages are validated, if there are
// schemas. Messages of extensions are not part of the schemas: with extensions, no message is
// validated.
func checkedTransport(t testing.TB, h mcp.Handler, on Combination, opts *mcp.ClientOptions) mcp.Transport {
	t.Helper()
	transport := Transport(t, h, on.Transport)
	k := &checker{t: t, on: on, schema: openSchema(t, on.Revision), methods: map[jsonrpc.ID]string{}}
	if k.schema == nil || opts != nil && len(opts.Extensions) > 0 {
		return transport
	}
	return mcp.Trace(transport, k.check)
}

// check validates a received message, a response by the method of its request.
func (k *checker) check(f mcp.Frame) {
	m := f.Message
	switch {
	case m == nil: // an HTTP request or response without a message
		return
	case f.Sent && m.Kind() == jsonrpc.Request:
		k.methods[m.ID] = m.Method
		return
	case f.Sent:
		return
	}
	method := k.methods[m.ID]
	if m.Kind() == jsonrpc.Response {
		delete(k.methods, m.ID)
	}
	if err := k.schema.Validate(m, method); err != nil {
		k.t.Errorf("%s: %v", k.on, err)
	}
}
