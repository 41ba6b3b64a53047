//go:build unix

package testhome

import "syscall"

// setUmask makes directories of tests private, whatever the umask of the developer is.
func setUmask() { syscall.Umask(0o022) }
