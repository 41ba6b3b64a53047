// Package listen prints the notifications of a server.
package listen

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A listenEvent is one line of `patchbay listen --json`.
type listenEvent struct {
	Event  string                  `json:"event"`
	URI    string                  `json:"uri,omitzero"`
	Filter *mcp.SubscriptionFilter `json:"filter,omitzero"`
}

// NewCmdListen returns the command "listen".
func NewCmdListen(p *cmdutil.Factory, names cmdutil.Lister) *cobra.Command {
	var flags mcp.SubscriptionFilter
	var count int
	var length time.Duration
	start := func(ctx context.Context, c *mcp.Client, words []string) error {
		f := flags
		f.ResourceSubscriptions = words
		if !f.ToolsListChanged && !f.PromptsListChanged && !f.ResourcesListChanged && len(words) == 0 {
			f.ToolsListChanged, f.PromptsListChanged, f.ResourcesListChanged = true, true, true
		}
		return runListen(ctx, p, c, f, count, length)
	}
	cmd := cmdutil.TargetCommand(p, "listen [URI…]", "Subscribe to changes and print them", names,
		func(ctx context.Context, t *target.Target, words []string) error {
			return cmdutil.WithServer(ctx, p, t, words, start) // --timeout does not bound it as a whole, but --for does
		})
	cmd.Flags().BoolVar(&flags.ToolsListChanged, "tools", false, "subscribe to the list of tools")
	cmd.Flags().BoolVar(&flags.PromptsListChanged, "prompts", false, "subscribe to the list of prompts")
	cmd.Flags().BoolVar(&flags.ResourcesListChanged, "resources", false, "subscribe to the list of resources")
	cmd.Flags().IntVar(&count, "count", 0, "stop after `n` changes")
	cmd.Flags().DurationVar(&length, "for", 0, "stop after this `duration`")
	return cmd
}

func runListen(
	outer context.Context, p *cmdutil.Factory, c *mcp.Client, f mcp.SubscriptionFilter, count int, length time.Duration,
) error {
	ctx := outer
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(outer, length)
		defer cancel()
	}
	changes := 0
	for event, err := range c.Listen(ctx, f) {
		if err != nil {
			return err
		}
		showEvent(p, event)
		if event.Kind != mcp.EventListening && event.Kind != mcp.EventChangesMissed {
			changes++
		}
		if count > 0 && changes == count {
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
