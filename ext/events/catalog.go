package events

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Catalog is the list of the event types of a server, which is read again only after it changed. It
// is safe for concurrent use.
//
// Spec: SEP-3415, Dynamic event types.
type Catalog struct {
	client *mcp.Client
	stop   context.CancelFunc
	done   chan struct{} // closed when the subscription ended

	mu      sync.Mutex // guards the fields below
	version int        // counts the changes of the list
	current bool       // changes are notified
	listed  []*Event   // of the version; nil if it was not read
}

// NewCatalog returns a catalog that subscribes to changes until it is closed. Against a server that
// notifies of no changes, the catalog reads the list each time.
func NewCatalog(c *mcp.Client) *Catalog {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Catalog{client: c, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer l.changed(false)
		filter := mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{topicListChanged: json.RawMessage("true")}}
		for e, err := range c.Listen(ctx, filter) {
			switch {
			case err != nil:
				return
			case e.Kind == mcp.EventListening, e.Kind == mcp.EventChangesMissed:
				l.changed(string(e.Filter.Topics[topicListChanged]) == "true")
			case e.Kind == mcp.EventTopic && e.Method == notificationListChanged:
				l.changed(true)
			}
		}
	}()
	return l
}

// changed forgets the list. It may be remembered again if changes are notified.
func (l *Catalog) changed(current bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	l.listed, l.current = nil, current
}

// Events returns the event types. The caller must not change them.
func (l *Catalog) Events(ctx context.Context) ([]*Event, error) {
	l.mu.Lock()
	listed, version := l.listed, l.version
	l.mu.Unlock()
	if listed != nil {
		return slices.Clone(listed), nil
	}
	all, err := mcp.Collect(List(ctx, l.client))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current && l.version == version {
		l.listed = append([]*Event{}, all...)
	}
	return all, nil
}

// Close ends the subscription to changes, and waits for that.
func (l *Catalog) Close() {
	l.stop()
	<-l.done
}
