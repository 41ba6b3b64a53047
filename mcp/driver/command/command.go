// Package command explains the starts of servers that
// [github.com/patchbay-mcp/patchbay/mcp.CommandTransport] runs as child processes.
package command

import "github.com/patchbay-mcp/patchbay/internal/childproc"

// RunnerTimeout limits the time until the first response of a server that a package runner starts,
// unless a client has another timeout.
const RunnerTimeout = childproc.RunnerTimeout

// IsPackageRunner reports whether the program at a path, such as npx, may download a server before
// it starts the server.
func IsPackageRunner(path string) bool { return childproc.IsPackageRunner(path) }

// Withheld returns the names of variables that a server with the environment env does not inherit
// by default: first the variables that stderr, the output of the server, mentions, then the
// variables of package runners.
func Withheld(env []string, stderr string) (names []string) { return childproc.Withheld(env, stderr) }

// A WithheldError reports a failed start. Variables that the server did not inherit may be the
// cause. Errors of [github.com/patchbay-mcp/patchbay/mcp.Connect] may wrap it.
type WithheldError = childproc.WithheldError
