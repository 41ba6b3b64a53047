// Package mcpint has the functions of package mcp that package mcphttp and the command line use, and
// that are not part of its API.
package mcpint

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Funcs are those functions. Package mcp imports this package, so its types are type parameters
// here: R is *mcp.Request and H is mcp.Handler.
type Funcs[R, H any] struct {
	// AppendResponse serves a request and appends the response message to dst. The error is that of
	// the response.
	AppendResponse func(dst []byte, ctx context.Context, h H, req R) ([]byte, *jsonrpc.Error)
	// AppendResult serves a request and appends the result to dst, or returns the error of the
	// response.
	AppendResult func(dst []byte, ctx context.Context, h H, req R) ([]byte, *jsonrpc.Error)
	// NewOpened returns a request whose envelope has been opened.
	NewOpened func(r wire.Request) R
	// SetVia sets what says how a request has arrived or is sent: a value with a method Via() mcp.Via.
	SetVia func(req R, via any)
	// ObserverOf returns the mcp.Observer of a handler, or nil.
	ObserverOf func(h H) any
	// Observe serves a request with a handler between the two calls of an mcp.Observer, as a server does.
	// known returns the Target of the outcome. The result is an mcp.Result.
	Observe func(ctx context.Context, observer any, h H, req R, known func(R, error) string) (result any, err error)
	// Checked says that a result of the request is a valid JSON object. If it is sent unchanged, it is
	// not scanned again.
	Checked func(req R, result json.RawMessage)
	// CheckedURIs returns the URIs that the session of a subscription has subscribed to before.
	CheckedURIs func(req R) *wire.CheckedURIs
	// ConnDone returns a channel that is closed when the current Conn of an mcp.Transport over
	// streams has ended. It is nil for other transports, and before the first request.
	ConnDone func(transport any) <-chan struct{}
	// ConnErr returns the reason for which that Conn has ended, such as an *mcp.ExitError, or nil.
	ConnErr func(transport any) error
	// Prepare makes an *mcp.CommandTransport call prepare, a func(*exec.Cmd) error, before each start
	// of its process. An error of prepare is that of the start.
	Prepare func(command, prepare any)
	// Configure sets in a *legacy.Config what sessions need to know of a handler, such as the
	// revisions that it accepts.
	Configure func(cfg any, h H)
}

var provided any // Funcs, set while package mcp is initialized

// Provide sets the functions. It reports true, so that a variable of package mcp can be initialized
// with it.
func Provide[R, H any](f Funcs[R, H]) bool {
	provided = f
	return true
}

// Get returns the functions. Package mcp must be initialized.
func Get[R, H any]() Funcs[R, H] { return provided.(Funcs[R, H]) }
