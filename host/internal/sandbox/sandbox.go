// Package sandbox isolates the processes of a server from the machine with bubblewrap (bwrap), a program that
// starts a command in new namespaces of Linux. On other systems it refuses to start the server.
//
// The settings are translated to options of bwrap, which reads them from a pipe: the values of variables
// appear neither on its command line nor in its own environment. Before each start, bwrap starts /bin/true with
// the same options, so that a sandbox that cannot be set up is reported as such and not as a server that ended.
package sandbox

import "strings"

// An Error reports that a server cannot be started in its sandbox.
type Error struct{ Reason string }

// Error returns the reason with advice.
func (e *Error) Error() string { return "sandbox: " + e.Reason }

// StartError returns the error of a process that ended with the text stderr on its standard error before it
// responded: an [Error] if the sandbox reports that it did not start the command, else nil.
func StartError(stderr string) error {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for _, program := range []string{"bwrap", "prlimit"} {
		if reason, ok := strings.CutPrefix(lines[len(lines)-1], program+": "); ok {
			return &Error{program + " did not start the command: " + reason}
		}
	}
	return nil
}
