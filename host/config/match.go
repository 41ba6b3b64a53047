package config

import "github.com/patchbay-mcp/patchbay/host/internal/catalogue"

// Match reports whether a name matches any of the patterns. In a pattern, * matches any text, which
// may be empty, and ? any single character. Other characters match themselves.
func Match(patterns []string, name string) bool { return catalogue.MatchAny(patterns, name) }
