package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// envStateDir is the environment variable that overrides the state directory.
const envStateDir = "PATCHBAY_STATE_DIR"

// stateDir returns a directory for state that is kept between runs, and creates it with mode 0700.
// Secrets belong in the vault instead.
func stateDir(name string) (string, error) {
	base, err := stateHome()
	if err != nil {
		return "", fmt.Errorf("find the state directory (set $%s): %w", envStateDir, err)
	}
	dir := filepath.Join(base, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// stateHome returns $XDG_STATE_HOME/patchbay or its default, and on Windows and macOS the directory
// for application data.
func stateHome() (string, error) {
	if dir := os.Getenv(envStateDir); dir != "" {
		return filepath.Abs(dir)
	}
	const own = "patchbay"
	switch runtime.GOOS {
	case "windows":
		dir, err := os.UserCacheDir() // %LocalAppData%
		return filepath.Join(dir, own), err
	case "darwin":
		dir, err := os.UserConfigDir() // ~/Library/Application Support
		return filepath.Join(dir, own), err
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, own), nil
	}
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = fmt.Errorf("home directory %q: must be absolute", home)
	}
	return filepath.Join(home, ".local", "state", own), err
}
