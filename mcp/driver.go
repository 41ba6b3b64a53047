package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Driver returns the interface to h for transports, and for handlers that report to an observer.
func Driver(h Handler) driver.Server[*Request, Result, Observer] { return &serverDriver{h} }

type serverDriver struct{ handler Handler }

// Respond implements [driver.Server].
func (d *serverDriver) Respond(ctx context.Context, req *Request) *jsonrpc.Message {
	return respond(ctx, d.handler, req)
}

// AppendResponse implements [driver.Server].
func (d *serverDriver) AppendResponse(dst []byte, ctx context.Context, req *Request) ([]byte, *Error) {
	start := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, req.ID.String()...)
	dst = append(dst, `,"result":`...)
	out, err := appendResult(dst, ctx, d.handler, req)
	if err != nil {
		return appendError(dst[:start], req.ID, err), err
	}
	return append(out, '}'), nil
}

// AppendResult implements [driver.Server].
func (d *serverDriver) AppendResult(dst []byte, ctx context.Context, req *Request) ([]byte, *Error) {
	return appendResult(dst, ctx, d.handler, req)
}

// Observe implements [driver.Server].
func (d *serverDriver) Observe(
	ctx context.Context, req *Request, target func(req *Request, err error) string,
) (Result, error) {
	if o := observerOf(d.handler); o != nil {
		return observe(ctx, o, d.handler, req, target)
	}
	return d.handler.ServeMCP(ctx, req)
}

// Observer implements [driver.Server].
func (d *serverDriver) Observer() Observer { return observerOf(d.handler) }

// Revisions implements [driver.Server].
func (d *serverDriver) Revisions() (all []string) {
	for _, r := range d.config().Revisions {
		all = append(all, r.String())
	}
	return all
}

// RootsChanged implements [driver.Server].
func (d *serverDriver) RootsChanged() func(ctx context.Context) { return d.config().RootsChanged }

func (d *serverDriver) config() *legacy.Config {
	c := &legacy.Config{Revisions: wire.Revisions()}
	configure(c, d.handler)
	return c
}

// Driver returns the part of the request that transports and forwarders set and read.
func (r *Request) Driver() *driver.Request { return &r.env }
