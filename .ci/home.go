//go:build linux

// Command home runs a command, such as go test, in a home directory that no test may use:
//
//	go run .ci/home.go go test work
//
// The directory contains the configuration files of all applications whose servers Patchbay reads.
// Their servers write a file when they start. The command fails if a configuration file was opened,
// a file was created, or a server was started. It requires Linux, which reports each use of a
// directory.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// configurations is the home of an imaginary user, with a configuration file of each application.
const configurations = "gateway/cmd/patchbay/internal/configs/testdata/home"

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: go run .ci/home.go command [argument]...")
	}
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(command []string) error {
	home, err := os.MkdirTemp("", "patchbay-canary-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if err := fill(home); err != nil {
		return err
	}
	env, err := environment(home)
	if err != nil {
		return err
	}
	w, err := watch(home)
	if err != nil {
		return err
	}
	if err := w.settle(); err != nil {
		return fmt.Errorf("the home is not watched: %w", err)
	}
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	err = errors.Join(cmd.Run(), w.settle())
	used := w.close()
	if _, started := os.Stat(filepath.Join(home, "started")); started == nil {
		used = append(used, "a server of the user was started")
	}
	if len(used) > 0 {
		err = errors.Join(err, fmt.Errorf("a test has used the home of the user:\n%s", strings.Join(used, "\n")))
	}
	return err
}

// fill creates the home of a user whose servers write the file "started".
func fill(home string) error {
	if err := os.CopyFS(home, os.DirFS(configurations)); err != nil {
		return err
	}
	script := "echo started >>'" + filepath.Join(home, "started") + "'; exec cat"
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"canary": map[string]any{"command": "sh", "args": []string{"-c", script}}}})
	if err != nil {
		return err
	}
	for _, name := range []string{".config/patchbay/mcp.json", ".cursor/mcp.json", ".config/Claude/claude_desktop_config.json"} {
		if err := os.WriteFile(filepath.Join(home, name), text, 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{".local/state/patchbay", ".local/share/patchbay", ".cache/patchbay", ".config/go/telemetry"} {
		if err := os.MkdirAll(filepath.Join(home, name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// environment returns the environment with home as the home directory. The go command keeps its
// caches.
func environment(home string) ([]string, error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "PATCHBAY_")
	})
	out, err := exec.Command("go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOENV").Output()
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, err
	}
	values["HOME"] = home
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env, nil
}

// A watcher records each use of the directories and files below a home.
type watcher struct {
	inotify  *os.File
	dirs     map[int32]string // by watch
	sentinel string           // the file that settle opens
	settled  chan struct{}    // receives when the use of sentinel was recorded
	ended    sync.WaitGroup
	used     []string // read after ended
}

// watch watches the directories below home, except the directory of the go command.
func watch(home string) (*watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &watcher{inotify: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{},
		sentinel: filepath.Join(home, "sentinel"), settled: make(chan struct{})}
	all := []string{}
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == "go":
			return filepath.SkipDir
		}
		all = append(all, path)
		return nil
	})
	if err := errors.Join(err, os.WriteFile(w.sentinel, nil, 0o600)); err != nil {
		return nil, err
	}
	const uses = syscall.IN_OPEN | syscall.IN_CREATE | syscall.IN_MODIFY | syscall.IN_DELETE
	for _, dir := range all { // after the walk, which opens them
		id, err := syscall.InotifyAddWatch(fd, dir, uses)
		if err != nil {
			return nil, err
		}
		w.dirs[int32(id)] = dir
	}
	w.ended.Go(w.receive)
	return w, nil
}

func (w *watcher) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			id, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name := string(bytes.TrimRight(b[syscall.SizeofInotifyEvent:end], "\x00"))
			w.record(filepath.Join(w.dirs[id], name), mask)
			b = b[end:]
		}
	}
}

func (w *watcher) record(path string, mask uint32) {
	what := "changed "
	switch {
	case path == w.sentinel:
		w.settled <- struct{}{}
		return
	case mask&syscall.IN_Q_OVERFLOW != 0:
		what = "more uses than the system records: "
	case mask&syscall.IN_OPEN != 0:
		what = "opened "
	}
	if !slices.Contains(w.used, what+path) {
		w.used = append(w.used, what+path)
	}
}

// settle returns when all uses before the call are recorded.
func (w *watcher) settle() error {
	f, err := os.Open(w.sentinel)
	if err != nil {
		return err
	}
	defer f.Close()
	select {
	case <-w.settled:
		return nil
	case <-time.After(time.Minute):
		return errors.New("the use of a file was not recorded within a minute")
	}
}

// close ends the watch and returns the uses.
func (w *watcher) close() []string {
	w.inotify.Close()
	w.ended.Wait()
	return w.used
}
