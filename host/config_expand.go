package host

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxExpanded bounds one expanded string, in bytes: no system takes longer arguments.
const maxExpanded = 1 << 20

// Expand returns the entry with its variables replaced: ${NAME} by what lookup says, ${NAME:-text} by text if it says
// nothing or the empty string. ${env:NAME} is another spelling of ${NAME}. A variable that is not set and has no
// default is an error that names it. lookup is os.LookupEnv as a rule. What it gives is not expanded again. The
// receiver stays as it is.
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

// expandText replaces the variables of one string. A dollar sign that no brace follows is a dollar sign.
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
			return "", errors.New("a ${ has no }")
		}
		value, err := variable(inner, lookup)
		if err != nil {
			return "", err
		}
		if b.Len()+len(value)+len(after) > maxExpanded {
			return "", fmt.Errorf("it has more than %d bytes when its variables are replaced", maxExpanded)
		}
		b.WriteString(value)
		text = after
	}
	return b.String(), nil
}

// variable returns what stands for the inside of ${…}.
func variable(inner string, lookup func(name string) (string, bool)) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	if !isName(name) {
		return "", fmt.Errorf("${%.64s} is not understood, want ${NAME} or ${NAME:-default}", inner)
	}
	value, set := lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("the environment has no %.64s", name)
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
