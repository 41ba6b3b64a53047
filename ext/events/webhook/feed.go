package webhook

import (
	"context"
	"iter"

	"github.com/patchbay-mcp/patchbay/ext/events"
)

// A Feed produces the events of subscriptions. Its methods are called concurrently. See
// [Sender.Serve] for the feed of an [events.Server].
type Feed interface {
	// Begin checks a new subscription and returns the position at which it begins, and whether
	// events after the cursor of its start are skipped. An [*mcp.Error] is for the client.
	Begin(ctx context.Context, s events.Subscription, at events.Start) (cursor string, truncated bool, err error)
	// Follow yields the items after a cursor, in order, until ctx ends. It waits while the loop
	// body runs. An error is the last value: an [*mcp.Error] with a code such as
	// [events.CodeForbidden] ends the subscription; after any other error Follow is called again. It is also called
	// again, after the end of ctx, when a refresh changed the Scopes of the principal or the Details.
	Follow(ctx context.Context, s events.Subscription, cursor string) iter.Seq2[events.Item, error]
}

// A served feed is the feed of a server.
type served struct{ server *events.Server }

func (f served) Begin(ctx context.Context, s events.Subscription, at events.Start) (string, bool, error) {
	feed, err := f.server.Open(ctx, events.ModeWebhook, s, at)
	if err != nil {
		return "", false, err
	}
	return feed.Cursor, feed.Truncated, nil
}

func (f served) Follow(ctx context.Context, s events.Subscription, cursor string) iter.Seq2[events.Item, error] {
	return func(yield func(events.Item, error) bool) {
		feed, err := f.server.Open(ctx, events.ModeWebhook, s, events.Start{Cursor: cursor})
		if err != nil {
			yield(events.Item{}, err)
			return
		}
		if feed.Truncated && !yield(events.Item{Gap: true, Cursor: feed.Cursor}, nil) {
			return
		}
		for item, err := range feed.Items(ctx) {
			if !yield(item, err) {
				return
			}
		}
	}
}
