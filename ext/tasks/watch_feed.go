package tasks

import (
	"context"
	stdjson "encoding/json"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// topicTasks is the member of a filter that names tasks to hear of, and notificationTasks what is heard.
	//
	// Spec: tasks extension, Task Status Notifications.
	topicTasks        = "taskIds"
	notificationTasks = "notifications/tasks"
)

// A feed listens to the changes of one task for as long as the server lets it. A nil feed hears nothing.
type feed struct {
	id     string
	cancel context.CancelFunc
	done   chan struct{}
	woken  chan struct{} // holds a token while it is time to look

	mu     sync.Mutex // guards the fields below
	agreed bool
	latest *sighting // that was told and not taken; nil for none
}

// newFeed begins to listen. That ends with ctx, and with stop.
func newFeed(ctx context.Context, c *mcp.Client, id string) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{id: id, cancel: cancel, done: make(chan struct{}), woken: make(chan struct{}, 1)}
	go func() {
		defer close(f.done)
		defer f.wake(false, nil) // whoever waits asks for itself again
		ids, err := json.Marshal([]string{id})
		if err != nil {
			return // an id that came as JSON always encodes
		}
		filter := mcp.Filter{Topics: map[string]stdjson.RawMessage{topicTasks: ids}}
		for e, err := range c.Listen(mcp.WithCallOptions(ctx, mcp.CallOptions{}), filter) {
			if err != nil || !f.hear(e) {
				return
			}
		}
	}()
	return f
}

// hear takes an event, and reports whether there is more to hear.
func (f *feed) hear(e mcp.Event) bool {
	switch e.Kind {
	case mcp.EventListening, mcp.EventResync:
		var ids []string
		_ = json.Unmarshal(e.Filter.Topics[topicTasks], &ids) // what is no list names no task
		agreed := slices.Contains(ids, f.id)
		f.wake(agreed, nil) // what was missed is asked for
		return agreed
	case mcp.EventTopic:
		if e.Method != notificationTasks {
			return true
		}
		s, err := form{}.seen(e.Params)
		switch {
		case err != nil:
			f.wake(true, nil) // the answer to a question may be better than the notification
		case s.ID == f.id:
			f.wake(true, s)
		}
	}
	return true
}

// wake says that it is time to look.
func (f *feed) wake(agreed bool, s *sighting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agreed, f.latest = agreed, s
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// wakes returns what says that it is time to look.
func (f *feed) wakes() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.woken
}

// take returns what was told; nil if the server is to be asked.
func (f *feed) take() *sighting {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.latest
	f.latest = nil
	return s
}

func (f *feed) isAgreed() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agreed
}

// stop ends the listening, and waits until it has ended.
func (f *feed) stop() {
	if f == nil {
		return
	}
	f.cancel()
	<-f.done
}
