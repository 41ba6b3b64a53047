package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Conn is a stream of messages between one client and one server. [Stdio], [NewStream] and [Pipe] give Conns; a further
// transport on streams needs nothing more than another one.
//
// Spec: basic/transports#custom-transports.
type Conn interface {
	// Read gives the next message of the peer. The error is io.EOF at the end of the stream, and a [*jsonrpc.DecodeError]
	// for one message that is refused, after which reading goes on. It fails when ctx ends or the Conn is closed. The
	// message is the caller's. One goroutine reads at a time.
	Read(ctx context.Context) (*jsonrpc.Message, error)
	// Write sends one message, and blocks while the peer is slow. It fails when ctx ends or the Conn is closed; a message
	// of which a part has left by then ends the stream. It does not keep the message. It is safe for concurrent use.
	Write(ctx context.Context, m *jsonrpc.Message) error
	// Close ends both directions, and with them every Read and Write that waits, as far as what is below allows.
	Close() error
}
