package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A runningGateway is a gateway that was started in a terminal, as its user sees it.
type runningGateway struct {
	url, key string
	command  []string // the command line for clients that start a command
}

// A screenText records what a command prints on a pseudo-terminal.
type screenText struct {
	keys  *os.File // what the user types
	mu    sync.Mutex
	shown strings.Builder
	more  chan struct{} // closed when something is printed
	ended chan struct{}
}

func (s *screenText) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.shown.String(), "\r\n", "\n")
}

// next returns a channel that is closed when the command prints again.
func (s *screenText) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.more
}

// openTerminal returns a pseudo-terminal whose output is recorded.
func openTerminal(t *testing.T) (replica *os.File, s *screenText) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	number := must(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	// Lines are not wrapped.
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 500}); err != nil {
		t.Fatal(err)
	}
	replica = must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	s = &screenText{keys: master, more: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.mu.Lock()
			s.shown.Write(b[:n])
			close(s.more)
			s.more = make(chan struct{})
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = replica.Close(); <-s.ended; _ = master.Close() })
	return replica, s
}

// startGateway runs `patchbay gateway` in a terminal until the test ends, and reads the client
// configurations that it prints.
func startGateway(t *testing.T, patchbay string, args ...string) *runningGateway {
	t.Helper()
	replica, screen := openTerminal(t)
	cmd := exec.Command(patchbay, append([]string{"gateway"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = replica, replica, replica
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-exited:
			if err != nil {
				t.Errorf("the gateway exited with an error: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the gateway does not end within 20 s of SIGTERM")
			_ = cmd.Process.Kill()
		}
		if t.Failed() {
			t.Logf("the gateway printed\n%s", screen.text())
		}
	})
	asked := false
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if !asked && strings.Contains(screen.text(), "asks for the input") { // Enter chooses the default
			asked = true
			must(screen.keys.WriteString("\n"))(t)
		}
		if g := readAnnouncement(screen.text()); g != nil {
			return g
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the gateway ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the gateway printed no client configuration within 20 s:\n%s", screen.text())
		}
	}
}

// readAnnouncement reads the URL, the key and the command from the configurations that a gateway
// prints. It returns nil while they are incomplete.
func readAnnouncement(text string) *runningGateway {
	g := &runningGateway{}
	for _, block := range jsonObjects(text) {
		var file struct {
			MCPServers map[string]struct {
				URL, Command string
				Args         []string
				Headers      map[string]string
			} `json:"mcpServers"`
		}
		if json.Unmarshal([]byte(block), &file) != nil {
			continue
		}
		for _, s := range file.MCPServers {
			if s.URL != "" {
				g.url, g.key = s.URL, strings.TrimPrefix(s.Headers["Authorization"], "Bearer ")
			}
			if s.Command != "" {
				g.command = append([]string{s.Command}, s.Args...)
			}
		}
	}
	if g.url == "" || g.key == "" || g.command == nil {
		return nil
	}
	return g
}

// jsonObjects returns the JSON objects in a text that begin at the start of a line.
func jsonObjects(text string) (all []string) {
	for {
		at := strings.Index("\n"+text, "\n{")
		if at < 0 {
			return all
		}
		text = text[at:]
		var object json.RawMessage
		if json.NewDecoder(strings.NewReader(text)).Decode(&object) == nil {
			all = append(all, string(object))
		}
		text = text[1:]
	}
}
