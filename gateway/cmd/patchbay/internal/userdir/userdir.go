// Package userdir locates the files that patchbay stores for a user, and the program itself.
package userdir

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
)

// EnvState is the environment variable that overrides the state directory.
const EnvState = "PATCHBAY_STATE_DIR"

// Dir creates a directory, of mode 0700, for state other than secrets, and returns its path. It refuses
// a directory that another user owns or can write.
func Dir(name string) (string, error) {
	base, err := StateHome()
	if err != nil {
		return "", fmt.Errorf("find the state directory (set $%s): %w", EnvState, err)
	}
	if err := private.MkdirAll(base); err != nil {
		return "", err
	}
	dir := filepath.Join(base, name)
	return dir, private.MkdirAll(dir)
}

// StateHome returns $XDG_STATE_HOME/patchbay, its default, or that of Windows and macOS.
func StateHome() (string, error) {
	if dir := os.Getenv(EnvState); dir != "" {
		if !filepath.IsAbs(dir) { // a relative one depends on the current directory, which may belong to another user
			return "", fmt.Errorf("invalid directory %q: must be absolute", dir)
		}
		return dir, nil
	}
	var dir string
	var err error
	switch xdg := os.Getenv("XDG_STATE_HOME"); {
	case runtime.GOOS == "windows":
		dir, err = os.UserCacheDir() // %LocalAppData%
	case runtime.GOOS == "darwin":
		dir, err = os.UserConfigDir() // ~/Library/Application Support
	case filepath.IsAbs(xdg):
		dir = xdg
	default:
		dir, err = os.UserHomeDir()
		dir = filepath.Join(dir, ".local", "state")
	}
	if err == nil && !filepath.IsAbs(dir) {
		err = fmt.Errorf("invalid directory %q: must be absolute", dir)
	}
	return filepath.Join(dir, "patchbay"), err
}
