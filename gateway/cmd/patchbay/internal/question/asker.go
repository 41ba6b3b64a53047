package question

import (
	"context"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// An Asker answers the questions of a server: from the command line, the file of --answers, the command of
// --sample-with, or the user.
type Asker struct {
	IO    *term.Streams
	Flags *flags.Flags

	Answers   *answers // the file of --answers
	Given     *Given   // the answer on the command line; may be nil
	Sampler   *Sampler // the command of --sample-with; nil without it
	leaveOpen bool     // questions that cannot be answered stay open instead of being declined
	Idle      bool     // no command of the shell is running

	Lock       chan struct{}                                // holds a token while the user is prompted
	Open       func(ctx context.Context, page string) error // opens a page in a browser
	ServerName atomic.Pointer[string]                       // names the server in questions
	Limit      atomic.Pointer[driver.Timeout]               // the time limit of the command; may be nil

	CommandContext context.Context // of the command of a shell; nil without a shell
	Current        func() *Asker   // returns the asker of the command in progress of a shell; nil without a shell
}

// NewAsker returns an asker without answers.
func NewAsker(io *term.Streams, f *flags.Flags) *Asker {
	return &Asker{IO: io, Flags: f, Lock: make(chan struct{}, 1), Open: oauthclient.OpenBrowser}
}

// active returns the asker that answers the server: in a shell, the asker of the running command.
func (p *Asker) active() *Asker {
	if p.Current == nil {
		return p
	}
	return p.Current()
}

// PauseLimit pauses the time of bounded, while the user decides, until resume is called.
func (p *Asker) PauseLimit() (resume func()) {
	limit := p.Limit.Load()
	if limit == nil {
		return func() {}
	}
	limit.Pause()
	return limit.Resume
}

// whileRunning returns a context that also ends with the command of the program.
func (p *Asker) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.CommandContext == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(p.CommandContext, func() { cancel(context.Cause(p.CommandContext)) })
	return ctx, func() { stop(); cancel(nil) }
}

// server names the server in questions, first by its URL or command, which it cannot choose.
func (p *Asker) server() string { return *p.ServerName.Load() }

// lockTerminal waits until no other question is shown, because a server can ask several at once.
func (p *Asker) lockTerminal(ctx context.Context) (unlock func(), err error) {
	select {
	case p.Lock <- struct{}{}:
		return func() { <-p.Lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
