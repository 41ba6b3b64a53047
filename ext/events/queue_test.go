package events

import (
	"encoding/json"
	"testing"
)

// After a notification was lost, later notifications are lost too: otherwise the position of the loop
// would pass the first.
func TestQueueStaysFull(t *testing.T) {
	for name, test := range map[string]struct {
		params json.RawMessage
		fit    int // notifications before the overflow
	}{
		"by number": {json.RawMessage("{}"), maxQueued},
		"by bytes":  {make(json.RawMessage, maxQueuedBytes/4), 4},
	} {
		overflows := 0
		q := &queue{wake: make(chan struct{}, 1), overflow: func() { overflows++ }}
		for range test.fit {
			q.put(notificationEvent, test.params)
		}
		if overflows != 0 {
			t.Errorf("%s: an overflow before %d notifications", name, test.fit)
		}
		q.put(notificationEvent, test.params)
		if got := len(q.take()); got != test.fit || overflows != 1 {
			t.Errorf("%s: got %d notifications, %d overflows, want %d and 1", name, got, overflows, test.fit)
		}
		q.put(notificationEvent, test.params)
		if got := len(q.take()); got != 0 {
			t.Errorf("%s: got %d notifications after the overflow, want none", name, got)
		}
	}
}
