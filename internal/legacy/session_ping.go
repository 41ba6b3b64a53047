package legacy

import (
	"context"
	"crypto/rand"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Ping sends a ping to the client and waits for the response. An error response counts too, since
// the client is connected.
//
// Spec: basic/utilities/ping
func (s *Session) Ping(ctx context.Context, out Sender) error {
	q, err := s.calls.Ask(jsonrpc.StringID(rand.Text()))
	if err != nil {
		return err
	}
	defer q.Withdraw() // no effect after the response
	if err := out.Send(ctx, jsonrpc.NewRequest(q.ID, wire.MethodPing, nil)); err != nil {
		return err
	}
	_, err = q.Wait(ctx)
	return err
}
