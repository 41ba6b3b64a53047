package config

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/netx"
)

const (
	// maxValue limits a file, and the output of a command, whose text becomes a value, in bytes.
	// Certificates and tokens are shorter.
	maxValue = 64 << 10
	// execTimeout is how long ${exec:…} may take. A password manager may wait for the user.
	execTimeout = 60 * time.Second
	// headerTimeout is how long a headersHelper may take: as in Claude Code.
	headerTimeout = 10 * time.Second
	// maxCommandHeaders is the most headers of a headersHelper.
	maxCommandHeaders = 100
)

// outside returns the value of ${file:PATH} or ${exec:COMMAND}.
func (e *expansion) outside(kind, rest string) (value string, err error) {
	var content []byte
	if kind == "exec" {
		if e.server.Project {
			return "", errors.New("refused in a project file: use it in a file of the user")
		}
		if e.static {
			return rest, nil
		}
		content, err = e.run(execTimeout, rest)
	} else {
		if home, ok := strings.CutPrefix(rest, "~/"); ok {
			dir, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			rest = filepath.Join(dir, home)
		}
		content, err = readRegular(e.server.resolve(rest), maxValue)
	}
	if strings.ContainsRune(string(content), 0) {
		err = errors.New("the value must be text without NUL")
	}
	return strings.TrimRight(string(content), "\r\n"), err
}

// run runs a command line with the shell, in the directory of the project for a project file, and
// returns its output. A command line runs once.
func (e *expansion) run(limit time.Duration, line string, env ...string) ([]byte, error) {
	key := strings.Join(append([]string{line}, env...), "\x00")
	if output, done := e.outputs[key]; done {
		return []byte(output), nil
	}
	ctx, cancel := context.WithTimeoutCause(e.ctx, limit, fmt.Errorf("command has not exited within %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line) // not from PATH, which may name another program
	if runtime.GOOS == "windows" {
		cmd = exec.CommandContext(ctx, "cmd.exe", "/d", "/s", "/c", line)
	}
	if e.server.Project {
		cmd.Dir = e.server.base
	}
	cmd.Env = append(cmd.Environ(), env...)
	output, err := childproc.Output(ctx, cmd, maxValue)
	if err != nil {
		return nil, err
	}
	if e.outputs == nil {
		e.outputs = map[string]string{}
	}
	e.outputs[key] = string(output)
	return output, nil
}

// addHeaders adds the headers that HeaderCommand prints to an expanded server. They replace headers
// with the same names. The command receives the variables that Claude Code sets.
func (e *expansion) addHeaders(s *Server) error {
	output, err := e.run(headerTimeout, s.HeaderCommand,
		"CLAUDE_CODE_MCP_SERVER_NAME="+s.Name, "CLAUDE_CODE_MCP_SERVER_URL="+s.URL)
	if err != nil {
		return err
	}
	// Errors do not repeat the output, which may be secret.
	if jsonscan.Valid(output, jsonscan.Limits{Keys: maxCommandHeaders}) != nil || jsonscan.Kind(output) != '{' {
		return fmt.Errorf("invalid output: want a JSON object of at most %d strings", maxCommandHeaders)
	}
	if s.Header == nil {
		s.Header = map[string]string{}
	}
	for name, raw := range jsonscan.Members(output) {
		value, err := text(raw)
		if err != nil || !netx.IsToken(string(name)) || strings.ContainsFunc(value, isControl) {
			return fmt.Errorf("invalid header %.64q: want a name of a header, and a string on one line", name)
		}
		for other := range s.Header {
			if strings.EqualFold(other, string(name)) {
				delete(s.Header, other)
			}
		}
		s.Header[textproto.CanonicalMIMEHeaderKey(string(name))] = value
		e.secrets = append(e.secrets, value)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
