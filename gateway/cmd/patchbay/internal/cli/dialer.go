package cli

import (
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A dialer connects to servers.
type dialer struct {
	IO      *streams
	Flags   *flags
	Ask     *asker
	Net     *network
	Login   *logins
	Observe *watch

	current       atomic.Pointer[target] // the server; nil before there is one
	shared        session                // the client of the shell; nil without one
	noQuestions   bool                   // the client declares neither elicitation nor sampling
	bridging      bool                   // clients answer the questions of the server
	explain       mcp.Middleware         // of the client of a bridge
	recorder      *recording.Writer      // writes the file of --trace; nil before the first connection
	commandStderr *tail                  // the end of the standard error of the server's command, without -v
	timed         bool                   // the command line contains --timeout

	received      atomic.Int64                   // bytes of results and errors
	missing       atomic.Pointer[missingServers] // of the last list; nil if the list is complete
	taskStarted   func(h *tasks.Handle)          // called when a call becomes a task
	taskCancelled atomic.Bool                    // the server has accepted tasks/cancel
	running       func() *dialer                 // returns the dialer of the command in progress of a shell
}

// active returns the dialer that handles what the server sends: in a shell, the dialer of the command in progress.
func (d *dialer) active() *dialer {
	if d.running == nil {
		return d
	}
	return d.running()
}
