package childproc

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// onlyZombies reports whether all processes of a group are zombies. In some containers the first
// process never reaps orphans.
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
	found := false // stays false if /proc belongs to another namespace
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // the process ended
		}
		// The name of the program is in parentheses and may hold any character; state, parent and
		// group follow it.
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
