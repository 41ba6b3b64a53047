package connect

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// OpenTrace opens the file of --trace before the first connection. It is closed when the program ends.
func (d *Dialer) OpenTrace() (err error) {
	if d.Flags.Trace == "" || d.recorder != nil {
		return nil
	}
	if d.recorder, err = recording.Open(d.Flags.Trace); err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	return nil
}

// trace records the messages of a transport, if --trace is set.
func (d *Dialer) trace(transport mcp.Transport, t *target.Target) {
	if d.recorder != nil {
		mcp.Trace(transport, d.recorder.Trace("patchbay "+build.Version(), t.PublicName()))
	}
}

// CloseTrace closes the file of --trace, and returns the first error of writing it.
func (d *Dialer) CloseTrace() error {
	if d.recorder == nil {
		return nil
	}
	if err := d.recorder.Close(); err != nil {
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("write the recording: %w", err)}
	}
	return nil
}
