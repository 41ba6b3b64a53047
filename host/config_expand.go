package host

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxExpanded bounds an expanded string, in bytes. Operating systems limit arguments to less.
const maxExpanded = 1 << 20

// Expand returns a copy with variables replaced: ${NAME} by its value, and ${NAME:-text} by text if
// the variable is unset or empty. ${env:NAME} is the same as ${NAME}. A variable that is unset and
// has no default is an error. lookup is usually os.LookupEnv; its values are not expanded again.
func (s *Server) Expand(lookup func(name string) (string, bool)) (*Server, error) {
	out := *s
	var errs []error
	expand := func(where, text string) string {
		expanded, err := expandText(text, lookup)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		return expanded
	}
	out.Command = expand("command", s.Command)
	out.Args = slices.Clone(s.Args)
	for i, arg := range out.Args {
		out.Args[i] = expand(fmt.Sprintf("args %d", i), arg)
	}
	out.Dir = expand("cwd", s.Dir)
	if out.Dir != "" && !filepath.IsAbs(out.Dir) {
		out.Dir = filepath.Join(s.base, out.Dir)
	}
	out.URL = expand("url", s.URL)
	out.Env = expandTable("env", s.Env, expand)
	out.Header = expandTable("headers", s.Header, expand)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	return &out, nil
}

func expandTable(where string, table map[string]string, expand func(where, text string) string) map[string]string {
	out := maps.Clone(table)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		out[key] = expand(where+" "+key, table[key])
	}
	return out
}

// expandText replaces the variables of a string. A dollar sign without a brace is literal.
func expandText(text string, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			break
		}
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("unterminated ${")
		}
		value, err := variable(inner, lookup)
		if err != nil {
			return "", err
		}
		if b.Len()+len(value)+len(after) > maxExpanded {
			return "", fmt.Errorf("too large with variables replaced: want at most %d bytes", maxExpanded)
		}
		b.WriteString(value)
		text = after
	}
	return b.String(), nil
}

// variable returns the value of the content of ${…}.
func variable(inner string, lookup func(name string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	if !isName(name) {
		return "", fmt.Errorf("invalid variable ${%.64s}: want ${NAME} or ${NAME:-default}", inner)
	}
	value, set := lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("environment variable %.64s is not set", name)
	}
	return value, nil
}

// isName reports whether text can be the name of an environment variable.
func isName(text string) bool {
	for i, c := range []byte(text) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || '9' < c) {
			return false
		}
	}
	return text != ""
}
