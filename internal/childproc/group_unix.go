//go:build unix

package childproc

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// A processGroup is a process and its descendants, except those that leave the group.
type processGroup struct {
	id    int // the id of the process; zero before the start
	guard *exec.Cmd
	input io.WriteCloser // the guard's standard input
}

const (
	shell = "/bin/sh" // not from PATH, which may name another program

	// guardScript reads the id of a group, waits for the end of its input and kills the group. Its
	// input ends when this process ends, for whatever reason: no other process holds the other end
	// of the pipe.
	guardScript = `trap "" HUP INT TERM; read -r group || exit 0; read -r end; kill -9 "-$group"`
)

// newProcessGroup prepares a command to be the first process of a new group. A small shell guards
// the group, because a process that is killed cannot end its children. Without a shell there is no
// guard.
func newProcessGroup(cmd *exec.Cmd) *processGroup {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	guard := &exec.Cmd{
		Path:        shell,
		Args:        []string{"sh", "-c", guardScript, "mcp-guard"},
		Dir:         "/",
		Env:         []string{},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // excludes it from signals of the terminal
	}
	input, err := guard.StdinPipe()
	if err != nil || guard.Start() != nil {
		return &processGroup{}
	}
	return &processGroup{guard: guard, input: input}
}

// add records the first process of the group.
func (g *processGroup) add(p *os.Process) {
	g.id = p.Pid
	if g.guard != nil {
		_, _ = io.WriteString(g.input, strconv.Itoa(g.id)+"\n")
	}
}

// release ends the guard.
func (g *processGroup) release() {
	if g.guard == nil {
		return
	}
	_ = g.guard.Process.Kill() // before the end of its input, which would make it kill the group
	_ = g.guard.Wait()
}

// terminate sends SIGTERM to all processes of the group.
func (g *processGroup) terminate() { g.signal(syscall.SIGTERM) }

// kill sends SIGKILL to all processes of the group.
func (g *processGroup) kill() { g.signal(syscall.SIGKILL) }

// signal sends a signal to the group. The id of a group that just ended is not in use again:
// systems assign ids in turn.
func (g *processGroup) signal(s syscall.Signal) { _ = syscall.Kill(-g.id, s) }

// hasEnded reports whether all processes of the group ended, after the first process was
// waited for.
func (g *processGroup) hasEnded() bool {
	// If this is the first process of a container, orphans of the group are its children.
	for {
		if id, err := syscall.Wait4(-g.id, nil, syscall.WNOHANG, nil); id <= 0 || err != nil {
			break
		}
	}
	return syscall.Kill(-g.id, 0) != nil || onlyZombies(g.id)
}

// signalOf returns the name of the signal that ended a process, or "".
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}
