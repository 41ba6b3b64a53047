//go:build !linux

package sandbox

import (
	"context"
	"os/exec"
	"runtime"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Sandbox does not exist on this system.
type Sandbox struct{}

// New returns an error: bubblewrap needs Linux.
func New(context.Context, *config.Sandbox, map[string]string) (*Sandbox, error) {
	return nil, &Error{"it needs Linux, and this system is " + runtime.GOOS +
		": run the gateway on Linux, or remove \"sandbox\" from the settings of the server"}
}

// Prepare is not called on this system.
func (*Sandbox) Prepare(*exec.Cmd) error { return nil }

// Started is not called on this system.
func (*Sandbox) Started() {}

// Close is not called on this system.
func (*Sandbox) Close() {}
