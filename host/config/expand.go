package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// maxExpanded bounds an expanded string, in bytes.
const maxExpanded = 1 << 20

// Expand returns a copy with variables replaced, and with the variables of EnvFile in Env. A
// variable of Env replaces a variable of EnvFile with the same name. The forms of variables are:
//
//   - ${NAME} and ${env:NAME}: the variable of the environment; ${NAME:-text}: text if the variable is
//     unset or empty. lookup returns the value and is usually os.LookupEnv.
//   - ${input:ID} and ${secret:NAME}: the value that lookup returns for the names "input:ID" and
//     "secret:NAME".
//   - ${file:PATH}: the content of a file of at most 64 KiB, without line breaks at its end. ~/ at
//     the beginning is the user's home directory. A relative path refers to the directory of the
//     configuration file.
//   - ${exec:COMMAND}: the output of a command line, which the shell runs for at most 60 seconds,
//     without line breaks at its end. The command must not contain }. Project files must not use it.
//   - ${workspaceFolder}: the directory of the project, or [Server].Workspace for a file of the
//     user; ${workspaceFolderBasename}: the last element of the path.
//   - ${userHome}: the user's home directory; ${pathSeparator} and ${/}: / or \.
//   - ${caller:subject}, in args, env and headers: the value that lookup returns for "caller:subject", the
//     subject of the caller that an instance serves. Expand returns an error for a subject that
//     [IsSafeSubject] refuses.
//   - ${$}: a dollar sign.
//
// For a variable that is unset and has no default, Expand returns an error with the names of the
// variable and the server. Values are not expanded again. The command of a project file runs in the
// directory of the project unless Dir is set. For a server with a URL, Expand runs HeaderCommand
// with the shell for at most 10 seconds, and adds its headers. Commands end with ctx.
//
// Expand reads files and runs commands that the entry names: see [TrustStore] for servers of
// project files. [Server.Secrets] of the result returns the secret values.
func (s *Server) Expand(ctx context.Context, lookup func(name string) (string, bool)) (*Server, error) {
	return (&expansion{ctx: ctx, server: s, lookup: lookup}).expand()
}

func (e *expansion) expand() (*Server, error) {
	s := e.server
	out := *s
	out.Command = e.text("command", s.Command)
	out.Args = slices.Clone(s.Args)
	for i, arg := range out.Args {
		out.Args[i] = e.text(fmt.Sprintf("args[%d]", i), arg)
	}
	out.Dir = s.resolve(e.text("cwd", s.Dir))
	if out.Dir == "" && s.Type == TypeStdio {
		out.Dir = s.Workspace
		if s.Project {
			out.Dir = s.base // a relative command is that of the project
		}
	}
	out.EnvFile = s.resolve(e.text("envFile", s.EnvFile))
	out.URL = e.text("url", s.URL)
	out.Env = e.table("env", s.Env)
	out.Header = e.table("headers", s.Header)
	if len(e.errs) == 0 && out.EnvFile != "" {
		variables, err := readEnvFile(out.EnvFile)
		e.add("envFile", err)
		maps.Copy(variables, out.Env)
		out.Env = variables
	}
	if len(e.errs) == 0 && s.HeaderCommand != "" && !e.static && s.Type != TypeStdio {
		e.add("headersHelper", e.addHeaders(&out))
	}
	if err := errors.Join(e.errs...); err != nil {
		return nil, fmt.Errorf("server %.64q: %w", s.Name, err)
	}
	out.secrets = e.allSecrets(&out)
	return &out, nil
}

// resolve returns a path that does not depend on the current directory, if the base does not.
func (s *Server) resolve(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.base, path)
}

// An expansion replaces the variables of a server.
type expansion struct {
	ctx     context.Context
	server  *Server
	lookup  func(name string) (string, bool)
	secrets []string
	errs    []error
	outputs map[string]string // of the commands that ran, by command line
	static  bool              // no command is run: its text replaces its output
	where   string            // the member that is expanded
}

func (e *expansion) add(where string, err error) {
	if err != nil {
		e.errs = append(e.errs, fmt.Errorf("%s: %w", where, err))
	}
}

func (e *expansion) text(where, text string) string {
	e.where = where
	expanded, err := e.replace(text)
	e.add(where, err)
	return expanded
}

func (e *expansion) table(where string, table map[string]string) map[string]string {
	out := maps.Clone(table)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		out[key] = e.text(fmt.Sprintf("%s %.64q", where, key), table[key])
	}
	return out
}

// replace replaces the variables of a text. A dollar sign without a brace is literal.
func (e *expansion) replace(text string) (string, error) {
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
		value, err := e.variable(inner)
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
func (e *expansion) variable(inner string) (string, error) {
	switch inner {
	case "$":
		return "$", nil
	case "/", "pathSeparator":
		return string(filepath.Separator), nil
	case "userHome":
		return os.UserHomeDir()
	case "workspaceFolder":
		return e.server.workspace()
	case "workspaceFolderBasename":
		dir, err := e.server.workspace()
		return filepath.Base(dir), err
	}
	prefix, rest, _ := strings.Cut(inner, ":")
	switch {
	case rest == "" || strings.HasPrefix(rest, "-"): // ${NAME:-text}
	case prefix == "input" || prefix == "secret":
		return e.stored(prefix, rest)
	case prefix == "caller":
		return e.caller(rest)
	case prefix == "file" || prefix == "exec":
		value, err := e.outside(prefix, rest)
		if err != nil {
			return "", fmt.Errorf("${%s:%.64s}: %w", prefix, rest, err)
		}
		e.secrets = append(e.secrets, value)
		return value, nil
	}
	return e.environment(inner)
}

// ErrNoSecret is matched by the error of [Server.Expand] if the secret of a ${secret:NAME} is not
// stored; test for it with [errors.Is].
var ErrNoSecret = errors.New("the secret is not stored")

// A noSecretError names the secret that is not stored. It matches [ErrNoSecret].
type noSecretError struct{ error }

// Is reports whether target is [ErrNoSecret].
func (noSecretError) Is(target error) bool { return target == ErrNoSecret }

// stored returns the value of ${input:ID} or ${secret:NAME}.
func (e *expansion) stored(kind, name string) (string, error) {
	value, set := e.lookup(kind + ":" + name)
	if !set || !inputID().MatchString(name) {
		hint := ""
		if kind == "input" {
			hint = ": start the program on a terminal, which asks for it, or add a default to the input"
		} else if inputID().MatchString(name) {
			hint = ": store it with \"patchbay gateway secret set " + name +
				"\", unless the log says that the vault cannot be opened"
		}
		err := fmt.Errorf("%s %.64q is not set%s", kind, name, hint)
		if kind == "secret" {
			err = noSecretError{err}
		}
		return "", err
	}
	shown := slices.ContainsFunc(e.server.Inputs, func(in Input) bool { return in.ID == name && !in.Password })
	if kind == "secret" || !shown {
		e.secrets = append(e.secrets, value)
	}
	return value, nil
}

// environment returns the value of ${NAME}, ${env:NAME} or ${NAME:-text}.
func (e *expansion) environment(inner string) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	if !variableName.MatchString(name) {
		return "", fmt.Errorf("invalid variable ${%.64s}: want ${NAME} or ${NAME:-default}", inner)
	}
	value, set := e.lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("environment variable %.64s is not set", name)
	}
	if secretName.MatchString(name) {
		e.secrets = append(e.secrets, value)
	}
	return value, nil
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	inputID      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`) })
)

func (s *Server) workspace() (string, error) {
	if s.Project {
		return filepath.Abs(s.base)
	}
	if s.Workspace != "" {
		return s.Workspace, nil
	}
	return os.Getwd()
}

// maxEnvFile bounds the file of EnvFile, in bytes: an environment is not larger on most systems.
const maxEnvFile = 1 << 20

// readEnvFile reads lines NAME=value. It ignores empty lines, lines that begin with #, the word
// export and quotes around a value; after a double quote, \n is a line break. Errors must not
// repeat the text, which may be secret.
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
