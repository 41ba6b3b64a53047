package mcp

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// onlyZombies reports whether all processes of a group are dead and wait for the system's first process, which in some
// containers never comes to reap them.
func onlyZombies(group int) bool {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	names, err := proc.Readdirnames(-1)
	_ = proc.Close() // it was only read
	if err != nil {
		return false
	}
	found := false // none is found where /proc is that of another namespace
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended since
		}
		// The name of the program is in parentheses and may hold anything; then come state, parent and group.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 3 || string(fields[2]) != strconv.Itoa(group) {
			continue
		}
		if state := fields[0][0]; state != 'Z' && state != 'X' {
			return false
		}
		found = true
	}
	return found
}
