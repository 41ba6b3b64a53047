package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// errNoPins reports that nothing compares the definitions of a server.
var errNoPins = errors.New("the definitions of the server are not recorded: its settings must contain " +
	"\"trust\"")

// Inspect connects the local user to a server, unless it is connected already, and reads its instructions,
// its serverInfo and all pages of its lists over that connection. It records them in [Options.State] as
// a request does, and returns the pins of the server. The host needs [Options.Pins].
//
// To show a user the definitions before another host uses them, give this host a [MemoryState], and copy
// what it has found with [CopyPins].
func (h *Host) Inspect(ctx context.Context, server string) ([]*Pin, error) {
	u := h.set.Load().byName[server]
	if u == nil {
		return nil, fmt.Errorf("host: unknown server %.64q", server)
	}
	u.resume()
	p := u.pool(&Caller{})
	s, err := p.acquire(ctx, anyClass)
	if err != nil {
		return nil, err
	}
	defer s.release()
	if s.pins == nil {
		return nil, &Error{Code: CodeConfigError, Server: u.name, Err: errNoPins}
	}
	for kind := range catalogue.Kinds {
		if err := p.inspect(ctx, s, catalogue.Kind(kind)); err != nil {
			return nil, err
		}
	}
	if failed := s.pins.err.Load(); failed != nil {
		return nil, fmt.Errorf("host: pins of server %.64q: %w", u.name, *failed)
	}
	return s.pins.load(ctx).pins(s.pins.identity), nil
}

// inspect reads and records a list of a connection.
func (p *pool) inspect(ctx context.Context, s *start, kind catalogue.Kind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
	defer cancel()
	r, err := p.readFrom(ctx, s, kind)
	if err != nil {
		return err
	}
	p.reviewing.Lock()
	defer p.reviewing.Unlock()
	p.review(ctx, s.pins, kind, r.list)
	return nil
}
