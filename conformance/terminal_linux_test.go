package conformance_test

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var updateGuide = flag.Bool("update", false, "rewrite the recordings in docs/command-line.md")

const (
	guide       = "../docs/command-line.md"
	guideHome   = "/home/ann" // as long as the real one, which columns of tables depend on
	screenWidth = "100"
	screenLines = "70"
	prompt      = "$"
)

// recordedBlock finds the recordings of the guide: a comment with the name, and a block.
var recordedBlock = regexp.MustCompile("(?s)<!-- recorded: ([a-z-]+) -->\n```text\n(.*?)```")

// TestTerminalRecordings types the commands of docs/command-line.md into bash in tmux, and compares
// the screens with the guide.
func TestTerminalRecordings(t *testing.T) {
	s := startStudio(t)
	text := string(must(os.ReadFile(guide))(t))
	inGuide := map[string]string{}
	for _, block := range recordedBlock.FindAllStringSubmatch(text, -1) {
		inGuide[block[1]] = block[2]
	}
	screens := map[string]string{}
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			screen := s.record(t, r)
			screens[r.name] = screen
			if want, ok := inGuide[r.name]; !ok {
				t.Errorf("the guide has no recording of this name; the screen is\n%s", screen)
			} else if screen != want && !*updateGuide {
				t.Errorf("the screen differs from the guide (-update rewrites it):\n%s\nwant\n%s", screen, want)
			}
			delete(inGuide, r.name)
		})
	}
	if len(screens) == len(recordings) {
		for name := range inGuide {
			t.Errorf("the guide has the recording %s, which is not in recordings", name)
		}
	}
	if *updateGuide {
		text = recordedBlock.ReplaceAllStringFunc(text, func(block string) string {
			name := recordedBlock.FindStringSubmatch(block)[1]
			if screen, ok := screens[name]; ok {
				return fmt.Sprintf("<!-- recorded: %s -->\n```text\n%s```", name, screen)
			}
			return block
		})
		if err := os.WriteFile(guide, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A studio is a tmux server, a home directory and a demo server.
type studio struct {
	tmux     string
	home     string
	patchbay string
	url      string // of the demo server
	free     string // a free address
	env      []string
}

func startStudio(t *testing.T) *studio {
	t.Helper()
	tmux := needShell(t, "tmux")
	s := &studio{tmux: tmux, home: shortHome(t), patchbay: build(t, "..", "./gateway/cmd/patchbay")}
	s.env = []string{"HOME=" + s.home, "LC_ALL=C.UTF-8", "TERM=xterm-256color",
		"SHELL=/bin/bash", "PATH=" + filepath.Dir(s.patchbay) + ":" + os.Getenv("PATH")}
	s.url = start(t, s.patchbay, "serve", "--insecure-no-auth", "--tasks", "memory", "--addr", freeAddr(t))
	secure := start(t, s.patchbay, "serve", "--tasks", "memory", "--auth", "demo", "--addr", freeAddr(t))
	s.write(t, ".config/patchbay/mcp.json", `{"mcpServers": {
		"demo": {"url": "`+s.url+`"}, "secure": {"url": "`+secure+`"}, "hotel": {"url": "`+startHotel(t)+`"}}}`)
	s.run(t, "new-session", "-d", "-s", "keep", "sleep 3600") // without a session tmux exits
	t.Cleanup(func() { _ = s.command("kill-server").Run() })
	return s
}

// shortHome creates an empty directory whose path is as long as guideHome.
func shortHome(t *testing.T) string {
	t.Helper()
	for i := range 10000 {
		dir := fmt.Sprintf("/tmp/%04d", (os.Getpid()+i)%10000)
		if os.Mkdir(dir, 0o700) == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	t.Fatal("no free directory in /tmp")
	return ""
}

// freeAddr returns an address with a free port of four digits, so that screens have the same columns.
func freeAddr(t *testing.T) string {
	t.Helper()
	for port := 8001 + os.Getpid()%500; port < 9999; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func (s *studio) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(s.home, name)
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *studio) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.tmux, append([]string{"-u", "-S", filepath.Join(s.home, ".tmux"), "-f", "/dev/null"}, args...)...)
	cmd.Env = s.env
	cmd.Dir = s.home
	return cmd
}

func (s *studio) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// record performs the steps of r in a new terminal, and returns its screen without what differs
// between runs.
func (s *studio) record(t *testing.T, r recording) string {
	t.Helper()
	for name, text := range r.files {
		s.write(t, name, text)
	}
	s.run(t, "new-session", "-d", "-s", r.name, "-x", screenWidth, "-y", screenLines,
		"-c", filepath.Join(s.home, r.dir), "env", "PS1="+prompt+" ", "bash", "--norc", "--noprofile")
	defer func() { _ = s.command("kill-session", "-t", r.name).Run() }()
	s.await(t, r.name, prompt, 1)
	s.free = freeAddr(t)
	replace := strings.NewReplacer("ROOT", strings.TrimSuffix(s.url, "/mcp"), "FREE", s.free)
	for _, step := range r.steps {
		want := step.want
		if want == "" {
			want = prompt
		}
		screen := s.screen(t, r.name)
		s.send(t, r.name, replace.Replace(step.keys))
		if step.act != nil {
			s.send(t, r.name, step.act(t, s, screen))
		}
		s.await(t, r.name, want, count(screen, want)+1)
		if step.also != "" {
			s.await(t, r.name, step.also, 1)
		}
	}
	screen := strings.TrimSuffix(s.screen(t, r.name), "\n"+prompt+"\n") + "\n"
	for _, n := range append(r.normalise, always...) {
		screen = regexp.MustCompile(n[0]).ReplaceAllString(screen, n[1])
	}
	return strings.ReplaceAll(screen, s.home, guideHome)
}

// always are patterns, and what replaces them, of every screen.
var always = [][2]string{
	{`127\.0\.0\.1:\d{4,5}`, "127.0.0.1:8765"},
	{`\n\n+$`, "\n"},
}

// count counts the occurrences of text on a screen, and the prompt as a line of its own.
func count(screen, text string) int {
	if text != prompt {
		return strings.Count(screen, text)
	}
	n := 0
	for line := range strings.Lines(screen) {
		if strings.HasPrefix(line, prompt) {
			n++
		}
	}
	return n
}

func (s *studio) send(t *testing.T, name, keys string) {
	t.Helper()
	if keys != "" {
		s.run(t, "send-keys", "-t", name, "-l", keys)
	}
}

// screen returns the screen without trailing spaces and empty lines.
func (s *studio) screen(t *testing.T, name string) string {
	t.Helper()
	lines := strings.Split(s.run(t, "capture-pane", "-p", "-J", "-t", name), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// await waits until text is on the screen n times.
func (s *studio) await(t *testing.T, name, text string, n int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for count(s.screen(t, name), text) < n {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %q; the screen is\n%s", text, s.screen(t, name))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
