//go:build unix

package config_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A pipe in the place of a project file would block every command and completion.
func TestProjectFileMustBeARegularFile(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(config.PathEnv, "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Skip(err)
	}
	for name, target := range map[string]string{"pipe": "pipe", "directory": ".", "device": "/dev/null"} {
		_ = os.Remove(".mcp.json")
		if err := os.Symlink(target, ".mcp.json"); err != nil {
			t.Fatal(err)
		}
		if configs, err := config.LoadAll(""); err == nil || len(configs) != 0 {
			t.Errorf("%s: LoadConfigs returned %d configurations, %v, want an error", name, len(configs), err)
		}
	}
}

// All processes of a command end with the context, and a process that outlives its command does not
// delay the value.
func TestProcessesOfCommandsEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	stopped := errors.New("stopped")
	for line, want := range map[string]error{
		"exec 3>" + pipe + "; echo ready >&3; sleep 1000 & sleep 1000": stopped,
		"exec 3>" + pipe + "; echo ready >&3; sleep 1000 & true":       nil,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			f, err := os.Open(pipe)
			if err == nil {
				_, err = io.ReadFull(f, make([]byte, len("ready\n")))
			}
			if want != nil {
				cancel(want)
			}
			if err == nil {
				_, err = io.ReadAll(f) // until no process has the pipe
			}
			ended <- err
		}()
		s := &config.Server{Name: "a", Type: config.TypeStdio, Command: "x", Args: []string{"${exec:" + line + "}"}}
		if _, err := s.Expand(ctx, os.LookupEnv); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", line, err, want)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel(nil)
	}
}
