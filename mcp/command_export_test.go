package mcp

import (
	"context"
	"io"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
)

// Dial starts the server of a command, as its first request does.
func (s *CommandTransport) Dial(ctx context.Context) (Conn, error) { return s.dial(ctx) }

// WithDeadline returns a pipe that has no deadlines what it lacks.
func WithDeadline(pipe io.WriteCloser) io.WriteCloser { return childproc.WithDeadline(pipe) }
