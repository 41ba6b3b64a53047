package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// envStateDir names the directory for what lasts.
const envStateDir = "PATCHBAY_STATE_DIR"

// stateDir returns a directory for what lasts from one run of the program to the next and is no secret, which tokens are: the
// vault has these. It is made if it is not there, for its user alone.
func stateDir(name string) (string, error) {
	base, err := stateHome()
	if err != nil {
		return "", fmt.Errorf("no directory for what lasts ($%s names one): %w", envStateDir, err)
	}
	dir := filepath.Join(base, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// stateHome returns what the system's users expect: $XDG_STATE_HOME or its default, and where there is no such custom the
// directory for the data of programs.
func stateHome() (string, error) {
	if dir := os.Getenv(envStateDir); dir != "" {
		return filepath.Abs(dir)
	}
	const own = "patchbay"
	switch runtime.GOOS {
	case "windows":
		dir, err := os.UserCacheDir() // %LocalAppData%, which is no cache
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
		err = errors.New("the home directory is a relative path")
	}
	return filepath.Join(home, ".local", "state", own), err
}
