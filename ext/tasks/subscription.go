package tasks

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A subscription receives the changes of a task, for as long as the server supports it. All
// methods can be called on nil. Spec: tasks extension, Task Status Notifications.
type subscription struct {
	id      string
	cancel  context.CancelFunc
	done    chan struct{}
	changed chan struct{} // contains an element if the task changed, or should be polled

	mu       sync.Mutex // guards the fields below
	accepted bool       // by the server
	latest   *seenTask  // that was received and not returned by received
}

// newSubscription subscribes to a task until ctx ends or stop is called.
func newSubscription(ctx context.Context, c *mcp.Client, id string) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	s := &subscription{id: id, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	go func() { // stop waits for it
		defer close(s.done)
		defer s.set(false, nil)
		ids, err := jsonv2.Marshal([]string{id})
		if err != nil {
			return // an id that was decoded from JSON always encodes
		}
		filter := mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{topicTasks: ids}}
		for e, err := range c.Listen(mcp.WithCallOptions(ctx, mcp.CallOptions{}), filter) {
			if err != nil || !s.receive(e) {
				return
			}
		}
	}()
	return s
}

// receive handles an event. It reports whether the subscription goes on.
func (s *subscription) receive(e mcp.Event) bool {
	switch e.Kind {
	case mcp.EventListening, mcp.EventChangesMissed:
		var ids []string
		_ = jsonv2.Unmarshal(e.Filter.Topics[topicTasks], &ids) // anything but a list accepts no task
		accepted := slices.Contains(ids, s.id)
		s.set(accepted, nil) // poll: changes may be missing
		return accepted
	case mcp.EventTopic:
		if e.Method != notificationTasks {
			return true
		}
		t, err := clientExtension{}.decodeTask(e.Params)
		switch {
		case err != nil:
			s.set(true, nil) // poll: the response may be valid
		case t.ID == s.id:
			s.set(true, t)
		}
	}
	return true
}

// set stores a task, nil to have it polled, and wakes the poller.
func (s *subscription) set(accepted bool, t *seenTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted, s.latest = accepted, t
	notify(s.changed)
}

// changes returns a channel that receives when the task changed or should be polled.
func (s *subscription) changes() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.changed
}

// received returns the task of the last notification, once; nil if the task must be polled.
func (s *subscription) received() *seenTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.latest
	s.latest = nil
	return t
}

func (s *subscription) isAccepted() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// stop ends the subscription and waits for its goroutine.
func (s *subscription) stop() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.done
}
