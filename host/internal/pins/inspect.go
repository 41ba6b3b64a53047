package pins

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Inspect reads and records all lists of a connection, and returns the pins of the server.
func (r *Reviewer) Inspect(ctx context.Context) ([]*pin.Pin, error) {
	for kind := range catalogue.Kinds {
		if err := r.record(ctx, catalogue.Kind(kind)); err != nil {
			return nil, err
		}
	}
	return r.Server.Pins(ctx)
}

func (r *Reviewer) record(ctx context.Context, kind catalogue.Kind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
	defer cancel()
	list, err := r.Source.ReadList(ctx, kind)
	if err == nil {
		r.Server.Review(ctx, r.Caller, kind, list)
	}
	return err
}
