package upstream

import (
	"context"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// Connect connects the local user to the server and ends the effect of Stop.
func (u *Server) Connect(ctx context.Context) error {
	u.resume()
	s, err := u.Pool(&policy.Caller{}).Acquire(ctx, AnyClass)
	if err == nil {
		s.Release()
	}
	return err
}

// Restart connects to the server again for every caller with an instance, and waits until the new
// connections are ready. Only then do they replace the old connections, which end with their last
// request: after 30 seconds at the latest, but not before their suspended requests. A connection
// that cannot be replaced stays in use; the error joins the reasons. Restart also ends a delay
// after failures and the effect of [Server.Stop]. ctx limits only the waiting.
func (u *Server) Restart(ctx context.Context) error {
	recordAdmin(u, "restart")
	started, err := u.restart()
	errs := []error{err}
	for _, s := range started {
		if err := s.Wait(ctx); err != nil {
			return err
		}
		if err := s.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (u *Server) restart() (started []*Conn, err error) {
	local := u.Pool(&policy.Caller{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
	u.endDelayLocked()
	var again []*instance
	for _, p := range u.pools {
		for _, i := range p.instances {
			if !i.calls && (i.current != nil || i.state != status.Off && i.state != status.Stopped) {
				again = append(again, i)
			}
			i.backoff = connection.Backoff{}
			i.wake()
		}
	}
	if len(again) == 0 {
		again = append(again, local.instanceLocked(AnyClass, false))
	}
	var errs []error
	for _, i := range again {
		s, err := i.restart()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		started = append(started, s)
	}
	return started, errors.Join(errs...)
}

// Stop ends all connections and the requests that they serve. Until [Server.Restart] or
// [Server.Connect], requests for the server fail. Stop returns when the processes have exited,
// within 11 seconds.
func (u *Server) Stop() {
	recordAdmin(u, "stop")
	u.stop(func() { u.stopped = true })
}

// Close is like Stop, and final.
func (u *Server) Close() {
	u.stop(func() {
		u.closed = true
		for _, p := range u.pools {
			p.lists.Close()
		}
	})
	if inCluster(u) {
		u.env.seat(u.name).end()
	}
}

// resume ends the effect of Stop.
func (u *Server) resume() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
}

func (u *Server) stop(mark func()) {
	u.mu.Lock()
	mark()
	var ended []<-chan struct{}
	for s := range u.connections {
		s.stopLocked()
		ended = append(ended, s.Ended())
	}
	u.mu.Unlock()
	for _, e := range ended {
		<-e
	}
}

// EndDelays lets delayed starts begin at once, except in a crash loop.
func (u *Server) EndDelays() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delay.Until = time.Time{}
	for _, p := range u.pools {
		for _, i := range p.instances {
			if i.state != status.CrashLoop {
				i.backoff.Until = time.Time{}
			}
		}
	}
}

// Inspect connects the local user to the server, and records and returns its definitions. ok is false if
// the definitions of the server are not compared with approved definitions.
func (u *Server) Inspect(ctx context.Context) (found []*pin.Pin, ok bool, err error) {
	u.resume()
	s, err := u.Pool(&policy.Caller{}).Acquire(ctx, AnyClass)
	if err != nil {
		return nil, false, err
	}
	defer s.Release()
	if s.pins == nil {
		return nil, false, nil
	}
	found, err = s.reviewer().Inspect(ctx)
	return found, true, err
}

// recordAdmin records an action of the operator on a server.
func recordAdmin(u *Server, action string) {
	u.env.Record(event.Admin, nil, u.name, map[string]string{"action": action})
}
