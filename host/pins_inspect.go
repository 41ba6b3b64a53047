package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// inspect reads and records all lists of a connection, and returns the pins of the server.
func (s pinSource) inspect(ctx context.Context) ([]*pin.Pin, error) {
	for kind := range catalogue.Kinds {
		if err := s.record(ctx, catalogue.Kind(kind)); err != nil {
			return nil, err
		}
	}
	return s.pins.pins(ctx)
}

func (s pinSource) record(ctx context.Context, kind catalogue.Kind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
	defer cancel()
	list, err := s.read(ctx, kind)
	if err == nil {
		s.pins.reviewList(ctx, s.caller, kind, list)
	}
	return err
}
