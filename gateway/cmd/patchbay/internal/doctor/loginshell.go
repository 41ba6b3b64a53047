package doctor

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// shellTimeout bounds the login shell, whose files may start slow programs.
	shellTimeout = 10 * time.Second
	// maxShellOutput bounds its output, in bytes: a PATH after the output of the user's files.
	maxShellOutput = 64 << 10
	// pathMark begins the line with the PATH.
	pathMark = "patchbay-path:"
)

// askLoginShell shows whether the user's login shell finds a program, and the directories of its
// PATH that are not in directories.
func (p *process) askLoginShell(ctx context.Context, c *Check, name string, directories []string) {
	shell := os.Getenv("SHELL")
	if shell == "" {
		c.see("no login shell: SHELL is not set")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, "-l", "-c", `printf '\n`+pathMark+`%s\n' "$PATH"`)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.see("login shell %s: %v", shell, err)
		return
	}
	text, _ := io.ReadAll(io.LimitReader(out, maxShellOutput)) // Wait reports the error
	err = cmd.Wait()
	_, after, found := strings.Cut(string(text), "\n"+pathMark)
	if !found {
		c.see("login shell %s printed no PATH: %v", shell, err)
		return
	}
	line, _, _ := strings.Cut(after, "\n")
	others := slices.DeleteFunc(filepath.SplitList(line), func(d string) bool { return slices.Contains(directories, d) })
	for _, directory := range others {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			c.see("your login shell finds %s", path)
		}
	}
	c.see("only in the PATH of your login shell: %s", listed(others))
}
