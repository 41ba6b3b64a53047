package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A runtime runs the programs of many servers.
type runtime struct {
	name    string // of the software
	program string // prints its version
	oldest  version
}

// A version contains the first two numbers of a version.
type version struct{ major, minor int }

// String returns the version without a minor version of 0.
func (v version) String() string {
	if v.minor == 0 {
		return strconv.Itoa(v.major)
	}
	return fmt.Sprintf("%d.%d", v.major, v.minor)
}

// isBefore reports whether a version is older than another.
func (v version) isBefore(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

// The oldest versions that the SDKs of MCP for Node.js and Python run on.
var (
	oldestNode   = version{18, 0}
	oldestPython = version{3, 10}
)

// runtimeTimeout bounds how long a runtime may take to print its version.
const runtimeTimeout = 10 * time.Second

// runtimeOf returns the runtime of a program at a path, or nil.
func runtimeOf(path string) *runtime {
	name := strings.ToLower(filepath.Base(path))
	for _, end := range []string{".exe", ".cmd"} {
		name = strings.TrimSuffix(name, end)
	}
	switch name {
	case "npx", "npm":
		return &runtime{"Node.js", "node", oldestNode}
	case "node":
		return &runtime{"Node.js", path, oldestNode}
	case "python", "python3":
		return &runtime{"Python", path, oldestPython}
	}
	return nil
}

var (
	versionNumbers = regexp.MustCompile(`(\d{1,4})\.(\d{1,4})`)
	// wrongRuntime matches the messages of npm, of uv and pip, and of Node.js for unknown syntax.
	wrongRuntime = regexp.MustCompile(`EBADENGINE|Unsupported engine|requires? (?:Node|Python|a different Python)` +
		`|SyntaxError: Unexpected token|Unknown built-in module: node:`)
)

// check compares the version of the runtime with the oldest version that servers need.
func (r *runtime) check(ctx context.Context, c *Check) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program, "--version")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil {
		c.see("%s --version: %v", filepath.Base(r.program), err)
		c.end(Warn, "repair %s: the command needs it", r.name)
		return
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	c.see("%s %s", r.name, strings.TrimPrefix(line, r.name+" "))
	found := versionNumbers.FindStringSubmatch(line)
	if found == nil {
		return // another program, which decides itself
	}
	var v version
	v.major, _ = strconv.Atoi(found[1])
	v.minor, _ = strconv.Atoi(found[2])
	if v.isBefore(r.oldest) {
		c.end(Warn, "install %s %s or later: servers made with the SDKs of MCP need it", r.name, r.oldest)
	}
}
