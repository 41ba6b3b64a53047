package mcp

import "context"

// Visible reports whether the caller of ctx may see and use a feature, as [ServerOptions.Visible] has it. Extensions ask
// before they tell of the feature in answers of their own. It is safe for concurrent use.
func (s *Server) Visible(ctx context.Context, f Feature) bool { return s.visible(ctx, f) }

// CacheHints returns the caching hints with which an answer of an extension leaves: private by default, and private in any
// case on a server with [ServerOptions.Visible], whose answers depend on the caller.
//
// Spec: server/utilities/caching (2026-07-28).
func (s *Server) CacheHints(c Cache) Cache {
	c = c.orPrivate()
	if s.opts.Visible != nil {
		c.Scope = CachePrivate
	}
	return c
}

// FileContents returns the bytes of a file as [AddFS] serves them: text if their type is one of text, or unknown, and they
// look like it, else a blob; with the MIME type that the extension of the name stands for. The contents alias data.
func FileContents(name string, data []byte) *ResourceContents { return fileContents(name, data) }
