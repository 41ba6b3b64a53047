// Package middleware has [mcp.Middleware] for servers that are exposed to many callers: limits of
// rates, a record for audits, and removal of characters that people do not see.
//
//	s := mcp.NewServer("name", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{
//		middleware.Audit(record),
//		middleware.RateLimit(&middleware.RateLimitOptions{ToolCalls: middleware.Rate{PerSecond: 5, Burst: 20}}),
//		middleware.Sanitize(nil),
//	}})
//
// The first middleware is the outermost: here refused calls are recorded too, and what the record
// contains has not been sanitized.
package middleware
