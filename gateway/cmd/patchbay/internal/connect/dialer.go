package connect

import (
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/network"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Dialer connects to servers.
type Dialer struct {
	IO      *term.Streams
	Flags   *flags.Flags
	Ask     *question.Asker
	Net     *network.Client
	Login   *login.Logins
	Observe *observe.Watch

	Current       atomic.Pointer[target.Target] // the server; nil before the command names it
	Shell         Shell                         // runs the command; nil outside a shell
	NoQuestions   bool                          // the client declares neither elicitation nor sampling
	Bridging      bool                          // clients answer the questions of the server
	Explain       mcp.Middleware                // of the client of a bridge
	Adjust        func(*mcp.ClientOptions)      // changes the options of the next clients; may be nil
	recorder      *recording.Writer             // writes the file of --trace; nil before the first connection
	CommandStderr *Tail                         // the end of the standard error of the server's command, without -v

	Received      atomic.Int64                   // bytes of results and errors
	Missing       atomic.Pointer[missingServers] // of the last list; nil if the list is complete
	TaskStarted   func(h *tasks.Handle)          // called when a call becomes a task
	TaskCancelled atomic.Bool                    // whether the server accepted tasks/cancel
	Running       func() *Dialer                 // returns the dialer of the command in progress of a shell
}

// active returns the dialer that handles server messages: in a shell, the running command's dialer.
func (d *Dialer) active() *Dialer {
	if d.Running == nil {
		return d
	}
	return d.Running()
}
