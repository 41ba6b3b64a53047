//go:build unix && !linux

package childproc

import "syscall"

// dieWithParent returns at once: on these systems only the guard protects the group.
func dieWithParent(*syscall.SysProcAttr) {}

// onlyZombies returns false: on these systems the first process reaps orphans.
func onlyZombies(int) bool { return false }
