//go:build unix

package testhome

import "syscall"

// setUmask prevents other users from writing to the directories of tests, whatever umask the
// developer uses.
func setUmask() { syscall.Umask(0o022) }
