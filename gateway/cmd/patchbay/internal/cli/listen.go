package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A listenEvent is one line of `patchbay listen --json`.
type listenEvent struct {
	Event  string                  `json:"event"`
	URI    string                  `json:"uri,omitzero"`
	Filter *mcp.SubscriptionFilter `json:"filter,omitzero"`
}

func listenCommand(p *factory, names lister) *cobra.Command {
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
	cmd := targetCommand(p, "listen [URI…]", "Subscribe to changes and print them", names,
		func(ctx context.Context, t *target, words []string) error {
			return withServer(ctx, p, t, words, start) // --timeout does not bound it as a whole, but --for does
		})
	cmd.Flags().BoolVar(&flags.ToolsListChanged, "tools", false, "subscribe to the list of tools")
	cmd.Flags().BoolVar(&flags.PromptsListChanged, "prompts", false, "subscribe to the list of prompts")
	cmd.Flags().BoolVar(&flags.ResourcesListChanged, "resources", false, "subscribe to the list of resources")
	cmd.Flags().IntVar(&count, "count", 0, "stop after `n` changes")
	cmd.Flags().DurationVar(&length, "for", 0, "stop after this `duration`")
	return cmd
}

func runListen(
	outer context.Context, p *factory, c *mcp.Client, f mcp.SubscriptionFilter, count int, length time.Duration,
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

func showEvent(f *factory, e mcp.Event) {
	if f.Flags.json {
		f.IO.Out.value(listenEvent{strings.ReplaceAll(e.Kind.String(), " ", "_"), e.URI, e.Filter})
		return
	}
	switch e.Kind {
	case mcp.EventListening:
		f.IO.Err.printf("listening to: %s", cleanLine(filterText(e.Filter)))
	case mcp.EventChangesMissed:
		f.IO.Err.printf("changes may have been missed: %s", cleanLine(filterText(e.Filter)))
	default:
		f.IO.Out.println(strings.TrimSpace(e.Kind.String() + " " + cleanLine(e.URI)))
	}
}

func filterText(f *mcp.SubscriptionFilter) string {
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
