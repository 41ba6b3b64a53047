package list

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Events returns the list of event types.
func Events(f *cmdutil.Factory) Listing[*events.Event] {
	return Listing[*events.Event]{Key: "events", All: eventTypes, Name: func(e *events.Event) string { return e.Name },
		Text: func(e *events.Event) []string { return []string{e.Name, e.Description} },
		Show: func(e *events.Event, whole bool) { showEventType(f, e, whole) }}
}

// NewCmdEvents returns the command "events list".
func NewCmdEvents(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "list [NAME]", "List event types, or show one with its arguments and payload", Events(f), run)
}

// eventTypes is [events.List] with the exit code of a server without events.
func eventTypes(c *mcp.Client, ctx context.Context) iter.Seq2[*events.Event, error] {
	return func(yield func(*events.Event, error) bool) {
		for e, err := range events.List(ctx, c) {
			if errors.Is(err, events.ErrNotOffered) {
				err = exit.NotFoundError(err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// showEventType prints an event type. The whole event type includes its arguments and payload.
func showEventType(f *cmdutil.Factory, e *events.Event, whole bool) {
	parameters, _ := argument.ParametersOf(e.InputSchema)
	showSignature(f, e.Name, parameters)
	cmdutil.ShowDescription(f, "", e.Description, whole)
	modes := make([]string, len(e.Delivery))
	for i, mode := range e.Delivery {
		modes[i] = term.CleanLine(string(mode))
	}
	f.IO.Out.Wrapped("  delivery: "+strings.Join(modes, ", "), "      ")
	if !whole {
		return
	}
	for _, line := range argument.InputTree(e.InputSchema) {
		showTreeLine(f, line)
	}
	for _, line := range argument.OutputTree("payload", e.PayloadSchema) {
		showTreeLine(f, line)
	}
}
