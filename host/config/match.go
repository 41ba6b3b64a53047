package config

import (
	"slices"
	"strings"
)

// Match reports whether a name matches any of the patterns. In a pattern, * matches any text, which
// may be empty, and ? any single character. Other characters match themselves.
func Match(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches compares a pattern in time proportional to the product of the two lengths at most.
func matches(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	i, star, tried := 0, -1, 0 // after the last *, its position and the first character that it does not cover
	for at := 0; at < len(n); {
		switch {
		case i < len(p) && p[i] == '*':
			star, tried = i, at
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[at]):
			i++
			at++
		case star >= 0:
			tried++
			i, at = star+1, tried
		default:
			return false
		}
	}
	return strings.Trim(string(p[i:]), "*") == ""
}
