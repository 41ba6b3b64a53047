package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
)

// maxMissedPings is the number of pings in sequence without a response after which the client is gone:
// one may be lost while a busy client does not read.
const maxMissedPings = 3

// keepAlive pings the client of a session at an interval, until the session or the stream ends. It ends
// the stream if the client does not respond.
//
// Spec: basic/utilities/ping.
func (s *stream) keepAlive(session *streamSession, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	responses := make(chan struct{}, maxMissedPings)
	missed := 0
	for {
		select {
		case <-session.ctx.Done():
			return
		case <-s.listening.Done():
			return
		case <-responses:
			missed = 0
		case <-ticker.C:
			if missed == maxMissedPings {
				s.log.WarnContext(s.ctx, "mcp: the client does not respond to pings", "pings", missed, "interval", interval)
				_ = s.fail(fmt.Errorf("no response to %d pings", missed))
				return
			}
			missed++
			s.work.Go(func() { // a write may block, so it is not waited for
				if s.ping(session.Session, maxMissedPings*interval) == nil {
					responses <- struct{}{}
				}
			})
		}
	}
}

func (s *stream) ping(session *legacy.Session, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.listening, timeout)
	defer cancel()
	return session.Ping(ctx, s.out)
}
