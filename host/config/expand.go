package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxExpanded bounds an expanded string, in bytes.
const maxExpanded = 1 << 20

// Expand returns a copy with variables replaced, and with the variables of EnvFile in Env, where
// those of Env replace them:
//
//   - ${NAME} and ${env:NAME} by the variable of the environment, and ${NAME:-text} by text if the
//     variable is unset or empty. lookup returns it and is usually os.LookupEnv.
//   - ${input:ID} by what lookup returns for the name "input:ID".
//   - ${workspaceFolder} by the directory of the project, or the current directory for a file of the
//     user; ${workspaceFolderBasename} by the last element of that path.
//   - ${userHome} by the user's home directory, and ${pathSeparator} and ${/} by / or \.
//   - ${$} by a dollar sign.
//
// A variable that is unset and has no default is an error. Values are not expanded again. The
// command of a project file runs in the directory of the project unless Dir is set.
func (s *Server) Expand(lookup func(name string) (string, bool)) (*Server, error) {
	out := *s
	var errs []error
	expand := func(where, text string) string {
		expanded, err := s.expandText(text, lookup)
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
	out.Dir = s.resolve(expand("cwd", s.Dir))
	if out.Dir == "" && s.Project && s.Type == TypeStdio {
		out.Dir = s.base // a relative command is that of the project
	}
	out.EnvFile = s.resolve(expand("envFile", s.EnvFile))
	out.URL = expand("url", s.URL)
	out.Env = expandTable("env", s.Env, expand)
	out.Header = expandTable("headers", s.Header, expand)
	if len(errs) == 0 && out.EnvFile != "" {
		variables, err := readEnvFile(out.EnvFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("envFile: %w", err))
		}
		maps.Copy(variables, out.Env)
		out.Env = variables
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	return &out, nil
}

// resolve returns a path that does not depend on the current directory, if the base does not.
func (s *Server) resolve(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.base, path)
}

func expandTable(where string, table map[string]string, expand func(where, text string) string) map[string]string {
	out := maps.Clone(table)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		out[key] = expand(fmt.Sprintf("%s %.64q", where, key), table[key])
	}
	return out
}

// expandText replaces the variables of a string. A dollar sign without a brace is literal.
func (s *Server) expandText(text string, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("unterminated ${")
		}
		value, err := s.variable(inner, lookup)
		if err != nil {
			return "", err
		}
		if b.Len()+len(value)+len(after) > maxExpanded {
			return "", fmt.Errorf("too large with variables replaced: want at most %d bytes", maxExpanded)
		}
		b.WriteString(value)
		text = after
	}
}

// variable returns the value of the content of ${…}.
func (s *Server) variable(inner string, lookup func(name string) (string, bool)) (string, error) {
	switch inner {
	case "$":
		return "$", nil
	case "/", "pathSeparator":
		return string(filepath.Separator), nil
	case "userHome":
		return os.UserHomeDir()
	case "workspaceFolder":
		return s.workspace()
	case "workspaceFolderBasename":
		dir, err := s.workspace()
		return filepath.Base(dir), err
	}
	if id, isInput := strings.CutPrefix(inner, "input:"); isInput {
		value, set := lookup(inner)
		if !set || !inputID.MatchString(id) {
			return "", fmt.Errorf("input %.64q is not set", id)
		}
		return value, nil
	}
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	if !variableName.MatchString(name) {
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

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	inputID      = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)
)

func (s *Server) workspace() (string, error) {
	if s.Project {
		return filepath.Abs(s.base)
	}
	return os.Getwd()
}

// maxEnvFile bounds the file of EnvFile, in bytes: an environment is not larger on most systems.
const maxEnvFile = 1 << 20

// readEnvFile reads lines NAME=value. Empty lines and those that begin with # are ignored, as are
// the word export and quotes around a value; after a double quote, \n is a line break. Errors do
// not repeat the text, which may be secret.
func readEnvFile(path string) (map[string]string, error) {
	content, err := readRegular(path, maxEnvFile)
	if err != nil {
		return nil, err
	}
	out, number := map[string]string{}, 0
	for line := range strings.Lines(strings.TrimPrefix(string(content), "\uFEFF")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !variableName.MatchString(name) || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("%s: line %d: invalid text: want NAME=value", path, number)
		}
		out[name] = unquoteValue(strings.TrimSpace(value))
	}
	return out, nil
}

func unquoteValue(value string) string {
	last := len(value) - 1
	if last < 1 || value[0] != value[last] || value[0] != '"' && value[0] != '\'' {
		return value
	}
	if value[0] == '"' {
		return strings.ReplaceAll(value[1:last], `\n`, "\n")
	}
	return value[1:last]
}
