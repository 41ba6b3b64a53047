package conformance_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConsoleOnATerminal runs the console on a pseudo-terminal with a stub for xdg-open: the browser
// opens once, standard output stays empty, the page is drawn while a server starts, and Ctrl-C leaves no
// process.
func TestConsoleOnATerminal(t *testing.T) {
	script := needShell(t, "script")
	browser := startBrowser(t)
	dir, patchbay := t.TempDir(), build(t, "..", "./gateway/cmd/patchbay")
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opened, out, marker := filepath.Join(dir, "opened"), filepath.Join(dir, "out"), filepath.Join(dir, "tasks.db")
	file("xdg-open", "#!/bin/sh\necho \"$1\" >>"+opened+"\n", 0o700)
	tree := file("tree.sh", patchbay+" serve --stdio --tasks "+marker+"\ntrue\n", 0o600) // a process below a shell
	config := file("mcp.json", `{"mcpServers": {"tree": {"command": "sh", "args": ["`+tree+`"]},
		"silent": {"command": "sh", "args": ["-c", "cat >/dev/null", "`+marker+`"]}}}`, 0o600)
	line := "exec " + patchbay + " console tree silent --addr 127.0.0.1:0 --config " + config + " >" + out
	cmd := exec.Command(script, "-qefc", line, "/dev/null")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DISPLAY=:0", "SSH_CONNECTION=", "SSH_TTY=", "SSH_CLIENT=")
	keys := must(cmd.StdinPipe())(t)
	screen := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(screen)
	url := ""
	for url == "" && lines.Scan() {
		url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/login#t=[0-9a-f]+`).FindString(lines.Text())
	}
	for lines.Scan() && !strings.Contains(lines.Text(), "Press Enter") {
	}
	p := newWatchedTab(t, browser)
	p.open(url)
	p.waitFor("the overview", `document.querySelector("#server-silent.busy .spinner") !== null`)
	p.waitFor("the tools", `document.querySelector("#server-tree.ok details.tools") !== null`)
	if !p.has("#server-silent.busy") {
		t.Error("the server that does not respond is no longer starting")
	}
	if got := marked(t, marker, tree); len(got) < 3 {
		t.Errorf("got the processes %q, want the shell, its server, and the server that does not respond", got)
	}
	if _, err := io.WriteString(keys, "\x03"); err != nil {
		t.Fatal(err)
	}
	drain(lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the console exited with an error: %v", err)
	}
	if got := marked(t, marker, tree); len(got) > 0 {
		t.Errorf("Ctrl-C left the processes %q", got)
	}
	if text, err := os.ReadFile(out); err != nil || len(text) > 0 {
		t.Errorf("standard output: got %q, %v, want none", text, err)
	}
	if text, err := os.ReadFile(opened); err != nil || string(text) != url+"\n" {
		t.Errorf("xdg-open: got %q, %v, want %s once", text, err, url)
	}
}

// marked returns the command lines of processes that contain a text.
func marked(t *testing.T, texts ...string) (found []string) {
	t.Helper()
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline"))(t) {
		line, _ := os.ReadFile(path) // fails if the process has ended
		for _, text := range texts {
			if strings.Contains(string(line), text) && !strings.Contains(string(line), "-qefc") {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
				break
			}
		}
	}
	return found
}
