package legacy

import (
	"context"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Initialize serves an initialize request and returns the session and the response. The session is
// nil if the response is an error. It combines [Open] and [Session.InitializeResponse].
func Initialize(ctx context.Context, cfg *Config, req *jsonrpc.Message) (*Session, *jsonrpc.Message) {
	s, err := Open(ctx, cfg, req)
	if err != nil {
		return nil, &jsonrpc.Message{ID: req.ID, Error: err}
	}
	answer := s.InitializeResponse(ctx, req.ID)
	if answer.Error != nil {
		return nil, answer
	}
	return s, answer
}
