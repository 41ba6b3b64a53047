package legacy

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// MaxMissedPings is the number of pings in sequence without a response after which the peer is
// gone: a busy client may miss a ping.
const MaxMissedPings = 3

// KeepAlive pings the client at an interval. It returns an error if three pings in sequence get no
// response, and nil when ctx or the session ends. It starts goroutines with start and does not wait
// for them, since a write may block; they end with ctx or a little later.
//
// Spec: basic/utilities/ping
func (s *Session) KeepAlive(ctx context.Context, out Sender, interval time.Duration, start func(func())) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	responses := make(chan struct{}, MaxMissedPings)
	missed := 0
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-ctx.Done():
			return nil
		case <-responses:
			missed = 0
		case <-ticker.C:
			if missed == MaxMissedPings {
				return fmt.Errorf("no response to %d pings, one each %v", missed, interval)
			}
			missed++
			start(func() {
				timeout, cancel := context.WithTimeout(ctx, MaxMissedPings*interval)
				defer cancel()
				if s.ping(timeout, out) == nil {
					responses <- struct{}{}
				}
			})
		}
	}
}

// ping sends a ping to the client and waits for the response. An error response counts too, since
// the client is connected.
func (s *Session) ping(ctx context.Context, out Sender) error {
	q, err := s.calls.Ask(s.newID())
	if err != nil {
		return err
	}
	defer q.Withdraw() // no effect after the response
	if err := out.Send(ctx, &jsonrpc.Message{ID: q.ID, Method: wire.MethodPing}); err != nil {
		return err
	}
	_, err = q.Wait(ctx)
	return err
}
