package mcp

import (
	"context"
	"io"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
)

// Dial starts the server of a command, as the first request does.
func (s *CommandTransport) Dial(ctx context.Context) (Conn, error) { return s.dial(ctx) }

// WithDeadline returns the pipe with SetWriteDeadline.
func WithDeadline(pipe io.WriteCloser) io.WriteCloser { return childproc.WithDeadline(pipe) }
