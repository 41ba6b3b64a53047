package cli

import (
	"context"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// An asker answers the questions of a server: from the command line, the file of --answers, the command of
// --sample-with, or the user.
type asker struct {
	IO    *streams
	Flags *flags

	answers   *answers     // the file of --answers
	given     *givenAnswer // the answer on the command line; nil without one
	sampler   *sampler     // the command of --sample-with; nil without it
	leaveOpen bool         // questions that cannot be answered stay open instead of being declined
	idle      bool         // no command of the shell is running

	lock       chan struct{}                                // holds a token while the user is prompted
	open       func(ctx context.Context, page string) error // opens a page in a browser
	serverName atomic.Pointer[string]                       // names the server in questions
	limit      atomic.Pointer[driver.Timeout]               // the time limit of the command; nil without one

	commandContext context.Context // of the command of a shell; nil without a shell
	current        func() *asker   // returns the asker of the command in progress of a shell; nil without a shell
}

func newAsker(io *streams, f *flags) *asker {
	return &asker{IO: io, Flags: f, lock: make(chan struct{}, 1), open: oauthclient.OpenBrowser}
}

// active returns the asker that answers what the server sends: in a shell, the asker of the command in progress.
func (a *asker) active() *asker {
	if a.current == nil {
		return a
	}
	return a.current()
}
