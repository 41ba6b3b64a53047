package connection_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// An owner is the owner of one connection. It uses each connection that succeeds.
type owner struct {
	*connection.Conn
	mu     sync.Mutex // guards events
	events []connection.EventKind
}

// open returns a running connection. Its transport comes from dial.
func open(t *testing.T, o *connection.Options, dial func(context.Context) (mcp.Transport, error)) *owner {
	t.Helper()
	own := &owner{}
	o.StartTimeout = time.Minute
	o.Prepare = func(ctx context.Context) (context.Context, *connection.Setup, error) {
		return ctx, &connection.Setup{Server: &config.Server{}, Client: &mcp.ClientOptions{}}, nil
	}
	o.Dial = func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return dial(ctx) }
	o.Notify = func(e connection.Event) {
		own.mu.Lock()
		own.events = append(own.events, e.Kind)
		own.mu.Unlock()
		switch e.Kind {
		case connection.Connected:
			if e.Err == nil {
				own.SetState(status.Ready)
			} else {
				own.Stop()
			}
			own.Finish(e.Err)
		case connection.Lost:
			own.Stop()
		}
	}
	o.Go = func(f func()) { f() }
	o.Stderr, o.Logger = &connection.Stderr{}, slog.New(slog.DiscardHandler)
	own.Conn = connection.New(t.Context(), o)
	go own.Run() // ends before <-Ended()
	t.Cleanup(func() {
		own.Stop()
		<-own.Ended()
	})
	return own
}

func inMemory(context.Context) (mcp.Transport, error) {
	return mcp.InMemory(mcp.NewServer("s", "1", nil)), nil
}

// wait waits until the attempt to connect has succeeded.
func (o *owner) wait(t *testing.T) {
	t.Helper()
	if err := errors.Join(o.Wait(t.Context()), o.Err()); err != nil {
		t.Fatal(err)
	}
}

func (o *owner) want(t *testing.T, kinds ...connection.EventKind) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.events, kinds) {
		t.Errorf("got events %v, want %v", o.events, kinds)
	}
}

// A connection that was replaced serves the requests in progress, and ends with the last of them.
func TestReplacedConnectionEndsWithItsLastRequest(t *testing.T) {
	c := open(t, &connection.Options{}, inMemory)
	c.Use()
	c.Use()
	c.wait(t)
	if !c.Drain() {
		t.Error("Drain of a ready connection changes nothing")
	}
	c.Release()
	if _, stop := c.Check(time.Now(), 0, false); stop || c.IsStopping() {
		t.Error("the connection ends before its last request")
	}
	c.Release()
	<-c.Ended()
	c.want(t, connection.Connected, connection.Stopped, connection.Ended)
}

// A request in progress keeps a replaced connection for 30 seconds, but a suspended request as long as it
// takes.
func TestReplacedConnectionIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, &connection.Options{}, inMemory)
		c.Use()
		c.wait(t)
		if !c.Resume() {
			t.Fatal("cannot continue a request")
		}
		c.Drain()
		time.Sleep(time.Hour)
		if _, stop := c.Check(time.Now(), 0, false); stop {
			t.Error("ends while a suspended request continues")
		}
		c.ReleaseResumed()
		if _, stop := c.Check(time.Now(), 0, false); !stop {
			t.Error("a request keeps the connection after its time")
		}
		c.Stop()
		if c.Resume() {
			t.Error("a request continues on a connection that was stopped")
		}
		c.Release()
	})
}

// A connection for one call ends with the call unless a task or an awaited answer needs the process.
func TestSingleConnectionEndsWithItsCall(t *testing.T) {
	for name, keep := range map[string]struct {
		by   func(c *owner)
		free func(c *owner)
	}{
		"nothing": {},
		"task": {func(c *owner) { c.KeepForTask("1", time.Now().Add(time.Hour)) },
			func(c *owner) { c.EndTask("1") }},
		"expired task": {func(c *owner) { c.KeepForTask("1", time.Now().Add(time.Hour)) },
			func(*owner) { time.Sleep(2 * time.Hour) }},
		"answer": {func(c *owner) { c.AwaitAnswer(time.Now().Add(time.Minute)) },
			func(*owner) { time.Sleep(time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open(t, &connection.Options{Single: true}, inMemory)
				c.Use()
				c.wait(t)
				if keep.by == nil {
					c.Release()
					<-c.Ended()
					c.want(t, connection.Connected, connection.Stopped, connection.Ended)
					return
				}
				keep.by(c)
				c.Release()
				c.want(t, connection.Connected, connection.Unused)
				if due, stop := c.Check(time.Now(), 0, false); stop || due.IsZero() {
					t.Errorf("got %v, %t, want another check", due, stop)
				}
				keep.free(c)
				if _, stop := c.Check(time.Now(), 0, false); !stop {
					t.Error("the connection is kept")
				}
			})
		})
	}
}

// A connection is idle if no request has used it for a time. A subscription keeps it.
func TestIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, &connection.Options{}, inMemory)
		c.wait(t)
		now := time.Now()
		if due, stop := c.Check(now, time.Minute, false); stop || !due.Equal(now.Add(time.Minute)) {
			t.Errorf("got %v, %t, want a check in a minute", due.Sub(now), stop)
		}
		time.Sleep(time.Minute)
		if _, stop := c.Check(time.Now(), time.Minute, true); stop {
			t.Error("a connection that is watched ends")
		}
		time.Sleep(time.Minute)
		if _, stop := c.Check(time.Now(), time.Minute, false); !stop {
			t.Error("an idle connection is kept")
		}
		if _, ok := c.IdleSince(time.Now()); !ok {
			t.Error("an idle connection cannot make room")
		}
		c.Use()
		if _, ok := c.IdleSince(time.Now()); ok {
			t.Error("a connection in use can make room")
		}
		c.Release()
	})
}

// An attempt that takes too long fails with the name of the setting. The next connection begins when the first
// has ended.
func TestConnectionsBeginInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := open(t, &connection.Options{}, func(ctx context.Context) (mcp.Transport, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil, ctx.Err()
		})
		began := time.Now()
		next := open(t, &connection.Options{After: first.Conn}, inMemory)
		_ = first.Wait(t.Context())
		const want = "the server did not become ready within startTimeout of 1m0s"
		if err := first.Err(); !errors.Is(err, connection.ErrNotReady) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		next.wait(t)
		if took := time.Since(began); took != 61*time.Second {
			t.Errorf("the second connection was made after %v", took)
		}
		first.want(t, connection.Connected, connection.Ended)
	})
}

// The state of a connection follows its requests until it is replaced.
func TestHealthOfConnection(t *testing.T) {
	c := open(t, &connection.Options{}, inMemory)
	c.wait(t)
	if c.SetHealth(status.Ready) || !c.SetHealth(status.Degraded) {
		t.Error("SetHealth does not report changes of the state")
	}
	if s := c.Status(); s.State != status.Degraded || s.Revision == "" || s.Stopping {
		t.Errorf("got %+v", s)
	}
	c.Drain()
	if c.SetHealth(status.Ready) || c.State() != status.Draining {
		t.Error("a request makes a replaced connection ready")
	}
}

// A server whose processes exit soon after each start is not started for five minutes. Other failures double
// the delay.
func TestBackoffAfterExits(t *testing.T) {
	now := time.Now()
	var b connection.Backoff
	for n := range connection.MaxEarlyExits {
		if crashes := b.Exited(now, time.Second); crashes != (n == connection.MaxEarlyExits-1) {
			t.Errorf("exit %d: crash loop is %t", n, crashes)
		}
	}
	if got := b.Until.Sub(now); got != connection.TrialInterval {
		t.Errorf("got a delay of %v", got)
	}
	if b.Exited(now, time.Hour) || b.Until.Sub(now) > time.Second {
		t.Errorf("got a delay of %v after a process that ran for an hour", b.Until.Sub(now))
	}
	for range 20 {
		b.Failed(now)
	}
	if got := b.Until.Sub(now); got > 5*time.Second {
		t.Errorf("got a delay of %v for another connection", got)
	}
}

// Starts that fail at the same time count once.
func TestStartDelayCountsStartsInProgressOnce(t *testing.T) {
	now := time.Now()
	var d connection.StartDelay
	for range 100 {
		d.Failed(now, now.Add(time.Second))
	}
	if got := d.Until.Sub(now); !d.IsActive() || got > 2*time.Second {
		t.Errorf("got a delay of %v", got)
	}
	d.Failed(now.Add(2*time.Second), now.Add(3*time.Second))
	d.Try(now.Add(time.Hour))
	if got := d.Until.Sub(now); got != time.Hour+time.Second {
		t.Errorf("got a delay of %v for other callers while a start is tried", got)
	}
}
