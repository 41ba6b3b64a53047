package mcpint

import "context"

// SessionKey is the key of a context's value with the id of the session that a request belongs to: a
// string. Package mcphttp sets it for the revisions before 2026-07-28, also for the initialize
// request that opens the session.
type SessionKey struct{}

// SessionID returns the id of the session that the request of ctx belongs to, or "". It is a secret.
func SessionID(ctx context.Context) string {
	id, _ := ctx.Value(SessionKey{}).(string)
	return id
}
