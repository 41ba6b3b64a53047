//go:build unix && !linux

package mcp

import "syscall"

// dieWithParent does nothing: the guard of the group is all that these systems allow.
func dieWithParent(*syscall.SysProcAttr) {}

// onlyZombies does not look: these systems have a first process that reaps.
func onlyZombies(int) bool { return false }
