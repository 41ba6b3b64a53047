// Package testhome isolates the tests of a package from the home directory of the developer, such as
// the configurations that a host reads and the logins that a client stores. It keeps log messages
// out of the output of tests that pass.
package testhome

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// directories maps each variable that names a directory of the user to a path below the temporary
// home.
var directories = map[string]string{
	"HOME": "", "USERPROFILE": "", "CODEX_HOME": ".codex",
	"XDG_CONFIG_HOME": ".config", "XDG_CONFIG_DIRS": "etc", "AppData": ".config",
	"XDG_CACHE_HOME": ".cache", "LocalAppData": ".cache",
	"XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share", "XDG_DATA_DIRS": "share",
	"XDG_RUNTIME_DIR": "run",
}

// isolated is the variable that marks the environment of an isolated test.
const isolated = "PATCHBAY_TEST_HOME"

// Main runs the tests of m with run, in a temporary home: every variable that names a directory of
// the user names a directory below it. Main returns the exit status:
//
//	func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }
//
// The go command keeps its caches. Messages of the default logger are printed only if a test fails.
// A test program that a test starts uses the same temporary home.
func Main(m *testing.M, run func(*testing.M) int) int {
	if os.Getenv(isolated) != "" {
		return run(m)
	}
	setUmask()
	home, err := os.MkdirTemp("", "patchbay-home-")
	if err == nil {
		defer func() { _ = os.RemoveAll(home) }()
		err = isolate(home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "home of the tests:", err)
		return 1
	}
	var messages bytes.Buffer // of the default logger, which serializes writes
	log.SetOutput(&messages)
	status := run(m)
	if status != 0 {
		_, _ = messages.WriteTo(os.Stderr)
	}
	return status
}

func isolate(home string) error {
	if err := keepGoCaches(); err != nil {
		return err
	}
	for name, below := range directories {
		dir := filepath.Join(home, filepath.FromSlash(below))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Setenv(name, dir); err != nil {
			return err
		}
	}
	if err := os.Setenv(isolated, home); err != nil {
		return err
	}
	return os.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no/bus") // makes the keyring unavailable
}

// keepGoCaches sets the variables of the go command whose defaults are below the home directory.
func keepGoCaches() error {
	out, err := exec.CommandContext(context.Background(), "go", "env", "-json",
		"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV").Output()
	if err != nil {
		return nil // without the go command, no test needs its caches
	}
	var values map[string]string
	if err := json.Unmarshal(out, &values); err != nil {
		return err
	}
	for name, value := range values {
		if err := os.Setenv(name, cmp.Or(os.Getenv(name), value)); err != nil {
			return err
		}
	}
	return nil
}
