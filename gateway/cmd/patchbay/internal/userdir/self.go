package userdir

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
)

// Self is the import path of the program.
const Self = "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay"

// SelfCommand returns the command line that starts this program with args, in any directory.
func SelfCommand(args ...string) (command string, all []string) {
	exe, err := os.Executable()
	if err == nil && !IsTransient(exe) {
		return exe, args
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Sum != "" { // downloaded by go run
		return "go", append([]string{"run", Self + "@" + info.Main.Version}, args...)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	return "go", append([]string{"-C", dir, "run", Self}, args...)
}

// IsTransient reports whether an executable is a temporary file of `go run`.
func IsTransient(exe string) bool {
	return builtByGoRun.MatchString(filepath.ToSlash(exe))
}

// builtByGoRun matches go-build1234/b001/exe/name, and 12/1234…-d/name in the cache.
var builtByGoRun = regexp.MustCompile(`/go-build\d+/|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)
