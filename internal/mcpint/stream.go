package mcpint

import (
	"context"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

type receiverKey struct{}

// WithReceiver returns a context for opening a session. A transport whose requests have streams of
// their own calls receive in place of the function that it is given otherwise: with the context of
// the request on whose stream the message arrived, or nil if that was a stream of the session.
func WithReceiver(ctx context.Context, receive func(of context.Context, m *jsonrpc.Message)) context.Context {
	return context.WithValue(ctx, receiverKey{}, receive)
}

// ReceiverFrom returns the function of [WithReceiver], or one that ignores the request.
func ReceiverFrom(
	ctx context.Context, receive func(m *jsonrpc.Message),
) func(of context.Context, m *jsonrpc.Message) {
	if r, ok := ctx.Value(receiverKey{}).(func(of context.Context, m *jsonrpc.Message)); ok {
		return r
	}
	return func(_ context.Context, m *jsonrpc.Message) { receive(m) }
}
