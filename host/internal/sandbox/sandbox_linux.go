package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
)

const (
	// maxOptions limits the options of bwrap with the environment, in bytes: the limit of Linux for an
	// environment that a stack of 8 MiB permits.
	maxOptions = 2 << 20
	// probeTimeout limits how long the sandbox of the probe may take, which usually takes some milliseconds.
	probeTimeout = 30 * time.Second
	// maxReason limits the text of bwrap in an error, in bytes.
	maxReason = 1 << 10
)

// A Sandbox starts the processes of a server in a sandbox. Callers must call Close. Its methods must not be
// called concurrently.
type Sandbox struct {
	bwrap   string
	options []string // of bwrap
	filter  []byte   // of system calls
	limits  []string // the command that sets resource limits and starts the command after it; may be empty
	folders []folder

	files   []*os.File // of a start in progress
	writing sync.WaitGroup
}

// New returns a sandbox with settings, whose processes receive the variables env. It examines the machine. The
// error is an [Error] if the machine cannot enforce the settings.
func New(ctx context.Context, s *config.Sandbox, env map[string]string) (*Sandbox, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, &Error{"bwrap is missing: install the package bubblewrap (apt install bubblewrap, " +
			"dnf install bubblewrap, apk add bubblewrap), version 0.8.0 or newer"}
	}
	b := &Sandbox{bwrap: bwrap, filter: filter(runtime.GOARCH)}
	if b.filter == nil {
		return nil, filterError()
	}
	if b.limits, err = limitCommand(s); err != nil {
		return nil, err
	}
	if b.folders, err = resolve(s); err != nil {
		return nil, err
	}
	b.options = slices.Concat(isolation(s), system(examine(), s), mounts(b.folders), environment(env))
	size := 0
	for _, option := range b.options {
		size += len(option) + 1
		if strings.Contains(option, "\x00") { // it separates options
			return nil, &Error{fmt.Sprintf("invalid text %.64q: must not contain a zero byte", option)}
		}
	}
	if size > maxOptions {
		return nil, &Error{fmt.Sprintf("the environment and the folders have %d bytes: want at most %d", size,
			maxOptions)}
	}
	return b, b.probe(ctx)
}

// Prepare changes a command, whose process is not started yet, so that it starts in the sandbox. A command that
// was not found is left alone. Call Started after the start.
func (b *Sandbox) Prepare(cmd *exec.Cmd) error {
	b.Close()
	if cmd.Err != nil {
		return nil // Start returns it
	}
	path, dir := cmd.Path, home
	if !filepath.IsAbs(path) { // it contains a slash, or LookPath had refused it
		path = filepath.Join(cmd.Dir, path)
	}
	if cmd.Dir != "" {
		dir = cmd.Dir
	}
	path, err := filepath.Abs(path)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		err = checkVisible(b.folders, "command", path)
	}
	if err == nil && dir != home && dir != temporary {
		err = checkVisible(b.folders, "cwd", dir)
	}
	if err != nil {
		return err
	}
	return b.wrap(cmd, path, dir)
}

// wrap makes bwrap start the command.
func (b *Sandbox) wrap(cmd *exec.Cmd, path, dir string) error {
	options := strings.Join(append(slices.Clone(b.options), "--chdir", dir), "\x00") + "\x00"
	calls, err := b.pass(cmd, b.filter)
	if err != nil {
		return err
	}
	list, err := b.pass(cmd, []byte("--seccomp\x00"+calls+"\x00"+options))
	if err != nil {
		return err
	}
	cmd.Args = append(append(append([]string{"bwrap", "--args", list, "--"}, b.limits...), path), cmd.Args[1:]...)
	cmd.Path, cmd.Dir, cmd.Env = b.bwrap, "/", []string{} // bwrap runs outside of the sandbox
	return closeInherited()
}

// pass makes a command inherit a file with a content, and returns its descriptor.
func (b *Sandbox) pass(cmd *exec.Cmd, content []byte) (descriptor string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	b.files = append(b.files, r)
	b.writing.Go(func() { // ends when the process read the content or closed the file
		_, _ = w.Write(content) // bwrap reports that it did not start
		_ = w.Close()
	})
	const firstExtra = 3
	cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	return strconv.Itoa(firstExtra + len(cmd.ExtraFiles) - 1), nil
}

// closeInherited marks the files that this process inherited from its parent, so that no command inherits them.
// Go marks each file that it opens.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("sandbox: the open files of this program are unknown: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Started closes the files that the process inherited.
func (b *Sandbox) Started() {
	for _, f := range b.files {
		_ = f.Close() // it was read by the process
	}
	b.files = nil
}

// Close ends a start that failed. No process of the sandbox may run.
func (b *Sandbox) Close() {
	b.Started()
	b.writing.Wait()
}

// probe starts /bin/true in the sandbox.
func (b *Sandbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/true")
	defer b.Close()
	if err := b.wrap(cmd, "/bin/true", "/"); err != nil {
		return err
	}
	output, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("sandbox: /bin/true did not end: %w", context.Cause(ctx))
	}
	reason := strings.TrimSpace(string(output[:min(len(output), maxReason)]))
	if reason == "" {
		reason = err.Error()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return &Error{"bwrap cannot be started: " + reason}
	}
	return &Error{"bwrap cannot set it up: " + reason + hint(reason, readSetting)}
}
