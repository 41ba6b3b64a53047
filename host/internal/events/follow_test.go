package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// A flood is a server that pushes large events until the stream ends.
type flood struct {
	most  int
	sent  chan int      // receives the number of events that were sent
	reads chan struct{} // nil, or receives a value for each item that was read: the flood waits for it
}

const floodBytes = 256 << 10

func (f *flood) Call(
	ctx context.Context, _ string, _ any, notify func(method string, params json.RawMessage),
) (json.RawMessage, error) {
	notify(Active, json.RawMessage(`{"cursor":"0","truncated":false}`))
	data, n := strings.Repeat("x", floodBytes), 0
	for ; n < f.most && ctx.Err() == nil; n++ {
		if f.reads != nil {
			<-f.reads
		}
		notify(Occurred, json.RawMessage(fmt.Sprintf(`{"eventId":"%d","name":"e","timestamp":"2026-10-05T12:00:00Z",
			"cursor":"%[1]d","data":{"text":%q}}`, n, data)))
	}
	f.sent <- n
	<-ctx.Done()
	return nil, ctx.Err()
}

// The notifications that wait for a slow caller are limited in bytes. A caller that reads receives all events.
func TestBytesOfWaitingNotificationsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flood{most: maxWaiting / 2, sent: make(chan int, 2)}
		for i, err := range (&Feed{Source: f, Pushes: true}).Run(t.Context(), Request{Name: "e"}) {
			if i.Begins { // the caller does not read
				if n := <-f.sent; n > maxWaitingBytes/floodBytes+1 {
					t.Errorf("%d events of %d bytes were accepted, more than %d bytes", n, floodBytes, maxWaitingBytes)
				}
				continue
			}
			if i.Err != errSlow || err != nil {
				t.Errorf("got %v, %v, want %v", i.Err, err, errSlow)
			}
			break
		}
	})
	synctest.Test(t, func(t *testing.T) {
		const most = 4 * maxWaitingBytes / floodBytes
		f, n := &flood{most: most, sent: make(chan int, 1), reads: make(chan struct{})}, 0
		for i, err := range (&Feed{Source: f, Pushes: true}).Run(t.Context(), Request{Name: "e"}) {
			if i.Err != nil || err != nil {
				t.Fatalf("got %v, %v after %d events", i.Err, err, n)
			}
			if i.Event != nil {
				n++
			}
			if n == most {
				break
			}
			f.reads <- struct{}{}
		}
	})
}
