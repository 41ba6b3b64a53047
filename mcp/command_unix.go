//go:build unix

package mcp

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// A processGroup is a process and all that it starts, as far as they do not leave the group by themselves.
type processGroup struct {
	id    int // the id of the process; zero before the start
	guard *exec.Cmd
	line  io.WriteCloser // the guard's standard input
}

const (
	shell = "/bin/sh" // where POSIX systems have it; not from PATH, which may have anything

	// guardScript reads the number of a group, waits for the end of its input and kills the group. The end comes when this
	// process ends, however it does: nobody else holds the other end of the pipe.
	guardScript = `trap "" HUP INT TERM; read -r group || exit 0; read -r end; kill -9 "-$group"`
)

// newProcessGroup prepares a command to be the first process of its own group. A small shell guards the group: when this
// process is killed it can end nothing any more. Without a shell there is no guard.
func newProcessGroup(cmd *exec.Cmd) *processGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	guard := &exec.Cmd{
		Path:        shell,
		Args:        []string{"sh", "-c", guardScript, "mcp-guard"},
		Dir:         "/",
		Env:         []string{},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a signal from the terminal is not for it
	}
	line, err := guard.StdinPipe()
	if err != nil || guard.Start() != nil {
		return &processGroup{}
	}
	return &processGroup{guard: guard, line: line}
}

// adopt takes the process that was started as the first of the group.
func (g *processGroup) adopt(p *os.Process) {
	g.id = p.Pid
	if g.guard != nil {
		_, _ = io.WriteString(g.line, strconv.Itoa(g.id)+"\n")
	}
}

// release says that nothing of the group is left, or that nothing more can be done about it.
func (g *processGroup) release() {
	if g.guard == nil {
		return
	}
	_ = g.guard.Process.Kill() // first, so that it does not see the end of its input
	_ = g.guard.Wait()
}

// terminate asks all processes of the group to end.
func (g *processGroup) terminate() { g.signal(syscall.SIGTERM) }

// kill ends all processes of the group.
func (g *processGroup) kill() { g.signal(syscall.SIGKILL) }

// signal sends a signal to the group. The number of a group that has just ended belongs to nobody else: systems give numbers
// in turn.
func (g *processGroup) signal(s syscall.Signal) { _ = syscall.Kill(-g.id, s) }

// gone reports whether no process of the group is left, once the first one was waited for.
func (g *processGroup) gone() bool {
	// The processes that it leaves are ours if this is the first process of a container.
	for {
		if id, err := syscall.Wait4(-g.id, nil, syscall.WNOHANG, nil); id <= 0 || err != nil {
			break
		}
	}
	return syscall.Kill(-g.id, 0) != nil || onlyZombies(g.id)
}

// signalOf names the signal that ended a process, if one did.
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}
