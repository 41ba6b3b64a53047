package shell

import (
	"context"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A urlTransport is a transport over HTTP.
type urlTransport interface {
	mcp.SessionTransport
	ServerKey() string
	UsesHeaderParams()
}

// An observedURL is a transport that reports lost sessions to the shell.
type observedURL struct {
	urlTransport
	shell *Shell
}

// OpenSession implements mcp.SessionTransport.
func (t *observedURL) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	c, err := t.urlTransport.OpenSession(ctx, receive)
	if err != nil {
		return nil, err
	}
	t.shell.mu.Lock()
	again := t.shell.client != nil && t.shell.transport == mcp.Transport(t)
	t.shell.mu.Unlock()
	if again {
		t.shell.base.IO.Err.Printf("The session has ended, and its state is lost. A new session has begun.")
		t.shell.lists.clear()
	}
	return c, nil
}

// Observe records a connection's transport, and returns a transport that reports lost sessions.
func (s *Shell) Observe(t mcp.Transport) mcp.Transport {
	if u, ok := t.(urlTransport); ok {
		t = &observedURL{urlTransport: u, shell: s}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transport = t
	return t
}
