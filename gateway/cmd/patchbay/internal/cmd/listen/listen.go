// Package listen prints the notifications of a server.
package listen

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A listenEvent is one line of `patchbay listen --json`.
type listenEvent struct {
	Event  string                  `json:"event"`
	URI    string                  `json:"uri,omitzero"`
	Filter *mcp.SubscriptionFilter `json:"filter,omitzero"`
}

// Options are the flags of "listen".
type Options struct {
	cmdutil.Invocation
	Filter mcp.SubscriptionFilter // without the resources, which are the Words
	Count  int                    // changes; 0 for no limit
	For    time.Duration          // 0 for no limit
}

// NewCmdListen returns the command "listen". names lists the URIs for completion.
func NewCmdListen(f *cmdutil.Factory, names cmdutil.Lister, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.TargetCommand(f, "listen [URI…]", "Subscribe to changes and print them", names, o,
		cmdutil.Or(run, listen))
	cmd.Flags().BoolVar(&o.Filter.ToolsListChanged, "tools", false, "subscribe to the list of tools")
	cmd.Flags().BoolVar(&o.Filter.PromptsListChanged, "prompts", false, "subscribe to the list of prompts")
	cmd.Flags().BoolVar(&o.Filter.ResourcesListChanged, "resources", false, "subscribe to the list of resources")
	cmd.Flags().IntVar(&o.Count, "count", 0, "stop after `n` changes")
	cmd.Flags().DurationVar(&o.For, "for", 0, "stop after this `duration`")
	return cmd
}

// listen connects without a limit for the whole: --for limits it, and --timeout does not.
func listen(ctx context.Context, o *Options) error {
	f := &o.Filter
	f.ResourceSubscriptions = o.Words
	if !f.ToolsListChanged && !f.PromptsListChanged && !f.ResourcesListChanged && len(o.Words) == 0 {
		f.ToolsListChanged, f.PromptsListChanged, f.ResourcesListChanged = true, true, true
	}
	return o.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error { return showEvents(ctx, o, c) })
}

func showEvents(outer context.Context, o *Options, c *mcp.Client) error {
	ctx := outer
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(outer, o.For)
		defer cancel()
	}
	changes := 0
	for event, err := range c.Listen(ctx, o.Filter) {
		if err != nil {
			return err
		}
		showEvent(o.Factory, event)
		if event.Kind != mcp.EventListening && event.Kind != mcp.EventChangesMissed {
			changes++
		}
		if o.Count > 0 && changes == o.Count {
			return nil
		}
	}
	switch {
	case outer.Err() != nil:
		return context.Cause(outer)
	case ctx.Err() != nil:
		return nil
	}
	return errors.New("the server ended the subscription")
}

func showEvent(f *cmdutil.Factory, e mcp.Event) {
	if f.Flags.JSON {
		f.IO.Out.Value(listenEvent{strings.ReplaceAll(e.Kind.String(), " ", "_"), e.URI, e.Filter})
		return
	}
	switch e.Kind {
	case mcp.EventListening:
		f.IO.Err.Printf("listening to: %s", term.CleanLine(FilterText(e.Filter)))
	case mcp.EventChangesMissed:
		f.IO.Err.Printf("changes may have been missed: %s", term.CleanLine(FilterText(e.Filter)))
	default:
		f.IO.Out.Println(strings.TrimSpace(e.Kind.String() + " " + term.CleanLine(e.URI)))
	}
}

// FilterText returns a subscription filter for people.
func FilterText(f *mcp.SubscriptionFilter) string {
	var all []string
	if f.ToolsListChanged {
		all = append(all, "tools")
	}
	if f.PromptsListChanged {
		all = append(all, "prompts")
	}
	if f.ResourcesListChanged {
		all = append(all, "resources")
	}
	all = append(all, f.ResourceSubscriptions...)
	if len(all) == 0 {
		return "nothing: the server does not support these notifications"
	}
	return strings.Join(all, ", ")
}
