package upstream_test

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
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// open returns the servers of a configuration. Each of them runs in memory.
func open(t *testing.T, text string) *upstream.Servers {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	log, store := slog.New(slog.DiscardHandler), &state.Memory{}
	unset := func(string) (string, bool) { return "", false }
	s := upstream.New(&upstream.Environment{Context: ctx, Go: running.Go, Lookup: unset, Logger: log, State: store,
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(mcp.NewServer("s", "1", nil)), nil
		},
		Limits: limits.New(limits.Options{State: store, Logger: log, Done: ctx.Done(),
			Settings: func() *config.CallerLimits { return &config.CallerLimits{} }}),
		Logins: login.New(login.Options{Lookup: unset, Logger: log, Context: ctx, Run: running.Go}),
		Notify: func(*upstream.Change) {}, Record: func(event.Kind, *policy.Caller, string, any) {},
		UsesRecent: func() bool { return false }, AddRecent: func(string, string) {},
		Users: func() []upstream.User { return nil }})
	s.Start(read(t, s, text))
	t.Cleanup(func() {
		for _, u := range s.All() {
			u.Close()
		}
		cancel()
		running.Wait()
	})
	return s
}

func read(t *testing.T, s *upstream.Servers, text string) *upstream.Set {
	t.Helper()
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := s.NewSet(f)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// connections returns the IDs of the connections of a server.
func connections(u *upstream.Server) (ids []string) {
	for _, c := range u.Status().Instances {
		ids = append(ids, c.ID)
	}
	return ids
}

// A reload keeps the connections of a server whose command is the same, and replaces the connections of a
// server with another command. Its requests know the new settings at once.
func TestReloadKeepsConnectionsOfTheSameCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, `{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}`)
		before := map[string][]string{}
		for _, u := range s.Current().Servers() {
			if err := u.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			before[u.Name()] = connections(u)
		}
		next := read(t, s, `{"mcpServers": {"a": {"command": "a"}, "b": {"command": "bb"}, "d": {"command": "d"}},
"patchbay": {"servers": {"a": {"deny": ["x"]}}}}`)
		d := s.Compare(next)
		for name, got := range map[string][]string{"a": d.Updated, "b": d.Changed, "c": d.Removed, "d": d.Added} {
			if !slices.Equal(got, []string{name}) {
				t.Errorf("%s: got the difference %+v", name, d)
			}
		}
		old := s.Use(next)
		s.Settle(old, d.Changed)
		a, b := s.Current().Named("a"), s.Current().Named("b")
		if got := connections(a); !slices.Equal(got, before["a"]) ||
			!slices.Equal(a.Entry().Settings.Deny, []string{"x"}) {
			t.Errorf("a: got the connections %q and deny %q, want %q and x", got, a.Entry().Settings.Deny, before["a"])
		}
		time.Sleep(time.Minute) // the old connection serves until the new one is ready
		if got := connections(b); len(got) != 1 || slices.Equal(got, before["b"]) {
			t.Errorf("b: got the connections %q, want a new one", got)
		}
		if s.Current().Named("c") != nil || old.Named("c") == nil {
			t.Error("c is not removed")
		}
	})
}

// Callers have pools of their own, unless the settings share the server.
func TestCallersShareAPoolOnlyIfTheSettingsSaySo(t *testing.T) {
	s := open(t, `{"mcpServers": {"own": {"command": "a"}, "all": {"command": "b"}},
"patchbay": {"servers": {"all": {"share": "shared"}}}}`)
	ann := &policy.Caller{Principal: &mcp.Principal{Subject: "ann"}}
	bob := &policy.Caller{Principal: &mcp.Principal{Subject: "bob"}}
	own, all := s.Current().Named("own"), s.Current().Named("all")
	if pool := own.Pool(ann); pool == own.Pool(bob) || pool != own.Pool(ann) {
		t.Error("own: want a pool for each caller")
	}
	if all.Pool(ann) != all.Pool(bob) {
		t.Error("all: want a pool for all callers")
	}
}

// A stopped server has no connections, and requests do not start it, until it is connected again.
func TestStopEndsConnections(t *testing.T) {
	u := open(t, `{"mcpServers": {"a": {"command": "a"}}}`).Current().Named("a")
	for range 2 {
		if err := u.Connect(t.Context()); err != nil || u.Status().State != status.Ready {
			t.Fatalf("got %v and the state %s, want ready", err, u.Status().State)
		}
		u.Stop()
		if st := u.Status(); st.State != status.Stopped || len(connections(u)) != 0 {
			t.Errorf("got the state %s and the connections %q, want stopped", st.State, connections(u))
		}
		_, err := u.Pool(&policy.Caller{}).Acquire(t.Context(), upstream.AnyClass)
		if !errors.Is(err, upstream.ErrStoppedByUser) {
			t.Errorf("a request got %v, want %v", err, upstream.ErrStoppedByUser)
		}
	}
}
