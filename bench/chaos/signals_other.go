//go:build !unix

package main

import "os"

// Other systems have no signals that stop a process.
var (
	signalTerminate = os.Kill
	signalStop      os.Signal
	signalContinue  os.Signal
	signalQuit      os.Signal
)
