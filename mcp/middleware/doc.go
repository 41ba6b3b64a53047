// Package middleware contains [mcp.Middleware] for servers with many callers: rate limits
// ([RateLimit]), audit records ([Audit]), and removal of hidden characters ([Sanitize]). For
// clients it contains [Completions].
//
//	s := mcp.NewServer("name", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{
//		middleware.Audit(record),
//		middleware.RateLimit(&middleware.RateLimitOptions{ToolCalls: middleware.Rate{PerSecond: 5, Burst: 20}}),
//		middleware.Sanitize(nil),
//	}})
//
// The first middleware is the outermost. In this order Audit also records the calls that RateLimit
// refuses. Targets in records come from the client and are not sanitized.
package middleware
