// Package events lists, polls and follows the events of a server, and has them sent to a URL.
package events

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/list"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdEvents returns the command "events" with its subcommands.
func NewCmdEvents(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.WithSubcommands(f, "events", "List, poll and follow events, or send them to a URL",
		list.NewCmdEvents(f, nil), NewCmdPoll(f, nil), NewCmdListen(f, nil), NewCmdSubscribe(f, nil),
		NewCmdUnsubscribe(f, nil))
}

// Options are the flags of the commands about an event type.
type Options struct {
	cmdutil.Invocation
	Cursor string
	MaxAge time.Duration // 0 for no limit
	Count  int           // occurrences to receive; 0 for no limit

	// Of "events subscribe" and "events unsubscribe".
	URL        string
	SecretFile string        // either this file or Listen is set
	Expires    time.Duration // 0 if the server decides
	Listen     string        // the address of the receiver of the command
}

// newCmd returns a command about an event type, whose name and arguments are its Words.
func newCmd(f *cmdutil.Factory, name, short string, o *Options, run cmdutil.Run[*Options],
	check func(*Options) error) *cobra.Command {
	cmd := cmdutil.TargetCommand(f, name+" NAME [ARGUMENT…]", short, list.Events(f).Names, o,
		func(ctx context.Context, o *Options) error {
			if err := check(o); err != nil {
				return exit.UsageError(err)
			}
			return run(ctx, o)
		})
	return cmdutil.CompleteArguments(f, cmd, completeArguments)
}

// withStart adds the flags of the position at which a command begins.
func withStart(cmd *cobra.Command, o *Options) *cobra.Command {
	cmd.Flags().StringVar(&o.Cursor, "cursor", "", "continue at this `cursor`; by default now")
	cmd.Flags().DurationVar(&o.MaxAge, "max-age", 0, "with --cursor, skip events older than this `duration`")
	return cmd
}

// NewCmdPoll returns the command "events poll".
func NewCmdPoll(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	return withStart(newCmd(f, "poll", "Print the events after a cursor", o, cmdutil.Or(run, cmdutil.Bounded(poll)),
		(*Options).checkStart), o)
}

// NewCmdListen returns the command "events listen".
func NewCmdListen(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := withStart(newCmd(f, "listen", "Print events as they occur", o, cmdutil.Or(run, follow),
		(*Options).checkStart), o)
	cmd.Flags().IntVar(&o.Count, "count", 0, "stop after `n` events")
	return cmd
}

func (o *Options) checkStart() error {
	switch {
	case o.MaxAge < 0:
		return fmt.Errorf("invalid --max-age %v: must be positive", o.MaxAge)
	case o.MaxAge > 0 && o.Cursor == "":
		return errors.New("--max-age requires --cursor: without a cursor only new events are received")
	case o.Count < 0:
		return fmt.Errorf("invalid --count %d: must be positive", o.Count)
	}
	return nil
}

// prepare returns the event type and the arguments that Words contain. verb is for errors.
func prepare(ctx context.Context, o *Options, c *mcp.Client, verb string) (*events.Event, stdjson.RawMessage, error) {
	e, err := find(ctx, o.Factory, c, o.Words[0])
	if err != nil {
		return nil, nil, err
	}
	a, err := o.Ask.NewArguments(ctx, o.Words[1:], e.InputSchema)
	if err != nil {
		parameters, _ := argument.ParametersOf(e.InputSchema)
		return nil, nil, cmdutil.WrongArguments(ctx, o.Factory, err, "events "+verb,
			argument.Signature(e.Name, parameters))
	}
	o.Ask.WarnUndeclared(a)
	return e, a.Object(), nil
}

func find(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, name string) (*events.Event, error) {
	l := list.Events(f)
	all, err := cmdutil.Collect(l.All(c, ctx))
	if err != nil {
		return nil, err
	}
	e, err := cmdutil.Find(all, name, "event", l.Name)
	if err != nil {
		cmdutil.ReportFailed(f) // a missing server may contain the event type
	}
	return e, err
}

// completeArguments completes the arguments of the event type that is the first word.
func completeArguments(ctx context.Context, c *mcp.Client, words []string, typed string) []string {
	for e, err := range events.List(ctx, c) {
		if err == nil && e.Name == words[0] {
			parameters, _ := argument.ParametersOf(e.InputSchema)
			return cmdutil.CompleteParameters(parameters, words[1:], typed)
		}
	}
	return nil
}

// show prints an occurrence as a line: its time, identifier and payload.
func show(f *cmdutil.Factory, d *events.Delivered) {
	f.IO.Out.Printf("%s  %s  %s", d.Time.Format(time.RFC3339), term.CleanLine(d.ID), term.CleanJSON(compact(d.Data)))
}

// compact returns JSON without line breaks.
func compact(data []byte) string {
	v := jsontext.Value(slices.Clone(data))
	if len(data) == 0 || v.Compact() != nil {
		return "null"
	}
	return string(v)
}

// showCursor says on standard error how to continue.
func showCursor(f *cmdutil.Factory, cursor string) {
	if cursor != "" && !f.Flags.JSON {
		f.IO.Err.Printf("To continue: --cursor %s", term.ShellWord(cursor))
	}
}
