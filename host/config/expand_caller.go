package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// callerSubject is the only variable of callers: ${caller:subject}.
const callerSubject = "subject"

// maxSubject bounds the subject of a caller in a value, in bytes. Source: OpenID Connect Core 1.0,
// section 2.
const maxSubject = 255

// UsesCaller reports whether the entry contains a variable that depends on the caller, such as
// ${caller:subject}.
func (s *Server) UsesCaller() bool {
	return slices.ContainsFunc(append(s.texts(), s.HeaderCommand),
		func(text string) bool { return strings.Contains(text, "${caller:") })
}

// caller returns the value of ${caller:subject} and ${caller:subject:-text}.
func (e *expansion) caller(rest string) (string, error) {
	name, fallback, hasFallback := strings.Cut(rest, ":-")
	switch {
	case name != callerSubject:
		return "", fmt.Errorf("unknown variable ${caller:%.64s}: want ${caller:subject}", rest)
	case !strings.HasPrefix(e.where, "args") && !strings.HasPrefix(e.where, "env ") &&
		!strings.HasPrefix(e.where, "headers"):
		return "", errors.New("${caller:subject} is for args, env and headers")
	case e.static:
		return "${caller:" + rest + "}", nil
	}
	value, set := e.lookup("caller:" + callerSubject)
	switch {
	case !set && hasFallback:
		return fallback, nil
	case !set:
		return "", errors.New("${caller:subject} has no value: the caller is the local user; " +
			"use ${caller:subject:-text} to serve it")
	case !IsSafeSubject(value):
		return "", fmt.Errorf("the subject of the caller cannot be used as a value: want 1 to %d ASCII letters, "+
			"digits and the characters . _ @ + : | = , ~ and -, not at the beginning -", maxSubject)
	}
	return value, nil
}

// IsSafeSubject reports whether the subject of a caller can be the value of ${caller:subject}: in an
// argument, it must not be an option, and in a path, not another file. It is still not safe in a
// command line that a shell reads.
func IsSafeSubject(subject string) bool {
	if subject == "" || len(subject) > maxSubject || subject[0] == '-' || strings.Trim(subject, ".") == "" {
		return false
	}
	return !strings.ContainsFunc(subject, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("._@+:|=,~-", r)
	})
}

// ExpandURL returns the URL of the server with its variables replaced, as [Server.Expand] does.
func (s *Server) ExpandURL(ctx context.Context, lookup func(name string) (string, bool)) (string, error) {
	e := &expansion{ctx: ctx, server: s, lookup: lookup, where: "url"}
	url, err := e.replace(s.URL)
	if err != nil {
		return "", fmt.Errorf("server %.64q: url: %w", s.Name, err)
	}
	return url, nil
}
