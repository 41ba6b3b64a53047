package replicas_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/replicas"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/replica"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// A process is one of several on a bus.
type process struct {
	*replicas.Processes
	log cmdtest.Buffer
	end func()
}

func join(t *testing.T, bus replica.Bus, name, configuration string) *process {
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{}
	now := time.Now()
	var wait func()
	p.Processes, wait = replicas.Join(ctx, bus, replicas.Process{ID: name, Name: name, Started: now, Since: now,
		Configuration: configuration}, slog.New(slog.NewTextHandler(&p.log, nil)))
	p.end = func() {
		cancel()
		wait()
	}
	return p
}

func (p *process) check(t *testing.T, processes int, others ...string) {
	t.Helper()
	r := p.Replicas()
	var names []string
	for _, o := range r.Other {
		names = append(names, o.Name)
	}
	if r.Processes != processes || strings.Join(names, " ") != strings.Join(others, " ") {
		t.Errorf("%d processes, others %q, want %d and %q", r.Processes, names, processes, others)
	}
}

func (p *process) warnings(name string) int { return strings.Count(p.log.String(), name) }

// A short difference is reported and not logged. A long difference is logged once, and again after a change.
func TestLongDifferencesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &replica.Memory{}
		a, b := join(t, bus, "a", "1"), join(t, bus, "b", "1")
		defer a.end()
		pause(time.Minute)
		a.check(t, 2)
		b.Use("2")
		changed := time.Now()
		pause(replicas.Tolerated)
		a.check(t, 2, "b")
		b.check(t, 2, "a")
		if since := a.Replicas().Other[0].Since; !since.Equal(changed) {
			t.Errorf("the difference began at %v, want the change at %v", since, changed)
		}
		if a.warnings("[b]") != 0 {
			t.Errorf("a difference of %v was logged: %s", replicas.Tolerated, &a.log)
		}
		pause(10 * replicas.Tolerated)
		if a.warnings("[b]") != 1 || b.warnings("[a]") != 1 {
			t.Errorf("a long difference: got the logs\n%s%s, want one warning each", &a.log, &b.log)
		}
		b.Use("1")
		pause(time.Minute)
		a.check(t, 2)
		b.Use("3")
		pause(2 * replicas.Tolerated)
		if a.warnings("[b]") != 2 {
			t.Errorf("another difference: got the log\n%s, want a second warning", &a.log)
		}
		b.end()
		a.check(t, 1)
	})
}

// A lossy is a bus that delivers nothing for some time.
type lossy struct {
	replica.Memory
	lost func(payload []byte) bool
}

func (l *lossy) Publish(ctx context.Context, topic string, payload []byte) (int, error) {
	if l.lost(payload) {
		return 0, nil
	}
	return l.Memory.Publish(ctx, topic, payload)
}

// A killed process is forgotten. A failure of the bus makes a process forget nobody, and warn nobody again.
func TestKilledProcessesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, killed atomic.Bool
		bus := &lossy{lost: func(payload []byte) bool {
			return all.Load() || killed.Load() && bytes.Contains(payload, []byte(`"b"`))
		}}
		a, b := join(t, bus, "a", "1"), join(t, bus, "b", "2")
		defer a.end()
		defer b.end()
		pause(2 * replicas.Tolerated)
		all.Store(true)
		pause(time.Hour)
		a.check(t, 2, "b")
		all.Store(false)
		pause(time.Hour)
		if a.warnings("[b]") != 1 {
			t.Errorf("got the log\n%s, want one warning", &a.log)
		}
		killed.Store(true)
		pause(time.Minute)
		a.check(t, 1)
	})
}

// Messages that no process sends have no effect, and their number is bounded.
func TestForgedAnnouncementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &replica.Memory{}
		a := join(t, bus, "a", "1")
		defer a.end()
		synctest.Wait()
		for _, payload := range []string{"", "{", "null", "[]", `{"name":"x"}`, strings.Repeat("[", 1<<12),
			`{"id":"x","name":"` + strings.Repeat("x", 1<<20) + `"}`} {
			if _, err := bus.Publish(t.Context(), "gateway/processes", []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
		a.check(t, 1)
		for i := range 5000 {
			text, err := json.Marshal(replicas.Process{ID: time.Duration(i).String(), Configuration: "1"})
			if err == nil {
				_, err = bus.Publish(t.Context(), "gateway/processes", text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a.check(t, 1001)
	})
}

// pause advances the clock of the bubble.
func pause(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
