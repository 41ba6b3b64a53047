package driver

import "context"

// A SessionObserver is an mcp.Observer that also receives the sessions of revisions before 2026-07-28.
type SessionObserver interface {
	// SessionBegan is called after initialize: at a server with the context of that request, on a stream
	// possibly after mcp.Serve returned. The function that it returns is called once, with the reason,
	// at the end of the session. Both must be fast and safe for concurrent use.
	SessionBegan(ctx context.Context, v Via) (ended func(cause error))
}

// A RefusalObserver is an mcp.Observer that also receives the HTTP requests that a transport refused
// before a handler saw them.
type RefusalObserver interface {
	// Refused receives the status and the reason, which is one of the fixed reasons of mcphttp.Stats.
	// It must be fast and safe for concurrent use.
	Refused(status int, reason string)
}
