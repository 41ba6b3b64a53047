//go:build unix

package main

import (
	"os"
	"syscall"
)

// The signals that the nemesis sends.
var (
	signalTerminate os.Signal = syscall.SIGTERM
	signalStop      os.Signal = syscall.SIGSTOP
	signalContinue  os.Signal = syscall.SIGCONT
	signalQuit      os.Signal = syscall.SIGQUIT
)
