package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
)

const (
	// repeatPause is the time between two attempts to send responses again. Losses that are reported
	// meanwhile are repaired together.
	repeatPause = time.Second
	// maxCopies limits the copies of a response, so that copies which overflow the queue of a slow
	// process do not cause more copies forever.
	maxCopies = 8
	// maxSent limits the responses that a process keeps for copies, in bytes. The bounds of a principal
	// and of a session prevent a client from displacing the responses of all others.
	maxSent, maxSentByPrincipal, maxSentBySession = 8 << 20, maxSent / 2, maxCarried
)

// A sentResponse is a response that this process passed on to the process that waits for it.
type sentResponse struct {
	topic, session, principal string
	data                      []byte
	at                        time.Time
	copies                    atomic.Int32 // that were sent while the bus worked
}

// retain keeps a response, which may get lost, for as long as a process waits for a response.
func (x *sharedSessions) retain(r *sentResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = slices.Insert(x.sent, 0, r) // the newest first
	size, ofPrincipal, ofSession := 0, 0, 0
	x.sent = slices.DeleteFunc(x.sent, func(old *sentResponse) bool {
		if old.principal == r.principal {
			ofPrincipal += len(old.data)
			if ofPrincipal > maxSentByPrincipal {
				return true
			}
		}
		if old.session == r.session {
			ofSession += len(old.data)
			if ofSession > maxSentBySession {
				return true
			}
		}
		size += len(old.data)
		return size > maxSent
	})
}

// expire forgets responses for which no process waits any more.
func (x *sharedSessions) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = slices.DeleteFunc(x.sent, func(r *sentResponse) bool {
		return time.Since(r.at) >= legacy.DefaultAnswerTimeout
	})
}

// repeatSoon sends the responses of this process again. If asks, the bus may have lost messages for
// this process, and it asks the other processes to do the same.
func (t *sessions) repeatSoon(asks bool) {
	x := &t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asks = x.asks || asks
	if x.repeating == nil && !x.ended {
		x.repeating = time.AfterFunc(repeatPause, t.repeat)
	}
}

// repeat sends copies of responses, which change nothing if the responses arrived. After a failure,
// it tries again.
func (t *sessions) repeat() {
	x := &t.shared
	x.expire()
	x.mu.Lock()
	asks, due := x.asks, slices.Clone(x.sent)
	x.asks, x.repeating = false, nil
	x.mu.Unlock()
	var err error
	if asks {
		var data []byte
		if data, err = stdjson.Marshal(&carried{Repeat: t.config.Process}); err == nil {
			_, err = x.publish(everyTopic, data)
		}
	}
	for _, r := range due {
		if err == nil && x.isDue(r) {
			if _, err = x.publish(r.topic, r.data); err == nil {
				r.copies.Add(1)
			}
		}
	}
	if err != nil {
		x.log.error(context.Background(), "mcphttp: responses for other processes not sent again", err)
		t.repeatSoon(asks)
	}
}

// isDue reports whether to send another copy of a response.
func (x *sharedSessions) isDue(r *sentResponse) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return r.copies.Load() < maxCopies && !x.ended
}

// publish sends a message to other processes.
func (x *sharedSessions) publish(topic string, data []byte) (receivers int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), receiptTimeout)
	defer cancel()
	return x.bus.Publish(ctx, topic, data)
}
