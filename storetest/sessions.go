package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// longIdle is a time for which no session of a suite is idle.
	longIdle = time.Hour
	// shortIdle is after how long the first idle session expires.
	shortIdle = 300 * time.Millisecond
)

// RunSessions tests that a store conforms to [replica.SessionStore]. open returns two clients of a
// new store.
func RunSessions(t *testing.T, open func(t *testing.T) (a, b replica.SessionStore)) {
	run(t, open, map[string]func(t *testing.T, a, b replica.SessionStore){
		"Load returns what Create and Update stored": sessionsLoad,
		"a change needs the current version":         sessionsVersions,
		"concurrent changes lose nothing":            sessionsConcurrent,
		"idle sessions expire":                       sessionsExpire,
		"Watch reports each change":                  sessionsWatch,
		"canceled context of sessions":               sessionsCanceled,
	})
}

func wantSession(t *testing.T, s replica.SessionStore, key string, want replica.Session) {
	t.Helper()
	got, err := s.Load(t.Context(), key)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("session %.40q: got %.200v, %v; want %.200v", key, got, err, want)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s returned %v, want %v", what, err, want)
	}
}

func sessionsLoad(t *testing.T, a, b replica.SessionStore) {
	for i, key := range []string{"a", "A", "}{", "a:b", "a\x00\xff", strings.Repeat("k", 128)} {
		_, err := b.Load(t.Context(), key)
		wantError(t, "Load of an unknown key", err, replica.ErrNoSession)
		s := replica.Session{Version: 7, Principal: "p " + key, Listener: strconv.Itoa(i), Data: []byte("1\n\x00\xff")}
		must(t, a.Create(t.Context(), key, s, longIdle))
		copy(s.Data, "new") // the store must not retain Data
		s.Version, s.Data = 1, []byte("1\n\x00\xff")
		wantSession(t, b, key, s)
		s.Principal, s.Listener, s.Data = "", "process", []byte(strings.Repeat(key, 1000))
		must(t, b.Update(t.Context(), key, s, longIdle))
		s.Version++
		wantSession(t, a, key, s)
	}
	for range 2 { // deleting an unknown session is no error
		must(t, b.Delete(t.Context(), "a"))
		_, err := a.Load(t.Context(), "a")
		wantError(t, "Load of a deleted session", err, replica.ErrNoSession)
	}
}

func sessionsVersions(t *testing.T, a, b replica.SessionStore) {
	for version := range uint64(2) {
		err := b.Update(t.Context(), "a", replica.Session{Version: version}, longIdle)
		wantError(t, "Update of an unknown session", err, replica.ErrNoSession)
	}
	wantError(t, "Keep of an unknown session", b.Keep(t.Context(), "a", longIdle), replica.ErrNoSession)
	must(t, a.Create(t.Context(), "a", replica.Session{}, longIdle))
	err := b.Create(t.Context(), "a", replica.Session{Data: []byte("two")}, longIdle)
	wantError(t, "a second Create", err, replica.ErrConflict)
	for _, wrong := range []uint64{0, 2, 10, 1 << 63} {
		err := b.Update(t.Context(), "a", replica.Session{Version: wrong, Data: []byte("two")}, longIdle)
		wantError(t, fmt.Sprint("Update of version ", wrong), err, replica.ErrConflict)
	}
	must(t, b.Keep(t.Context(), "a", longIdle))
	wantSession(t, a, "a", replica.Session{Version: 1})
}

func sessionsConcurrent(t *testing.T, a, b replica.SessionStore) {
	const changes = 3 * concurrentUsers
	must(t, a.Create(t.Context(), "a", replica.Session{}, longIdle))
	concurrently(a, b, func(_ int, s replica.SessionStore) {
		for done := 0; done < changes/concurrentUsers; {
			current, err := s.Load(t.Context(), "a")
			if err == nil {
				n, _ := strconv.Atoi(string(current.Data))
				current.Data = strconv.AppendInt(nil, int64(n+1), 10)
				err = s.Update(t.Context(), "a", current, longIdle)
			}
			if err == nil {
				done++
			} else if !errors.Is(err, replica.ErrConflict) {
				t.Error(err)
				return
			}
		}
	})
	wantSession(t, b, "a", replica.Session{Version: changes + 1, Data: strconv.AppendInt(nil, changes, 10)})
}

func sessionsExpire(t *testing.T, a, b replica.SessionStore) {
	created := 0
	short := func(extend func(key string) error) (key string) { // expires after the sessions before
		for { // a slow machine may need longer than the session lasts
			created++
			key = strconv.Itoa(created)
			must(t, a.Create(t.Context(), key, replica.Session{}, time.Duration(created)*shortIdle))
			if err := extend(key); !errors.Is(err, replica.ErrNoSession) {
				must(t, err)
				return key
			}
		}
	}
	kept := short(func(key string) error { return b.Keep(t.Context(), key, longIdle) })
	changed := short(func(key string) error {
		return b.Update(t.Context(), key, replica.Session{Version: 1}, longIdle)
	})
	want, stop := watch(b)
	defer stop()
	idle := short(func(key string) error {
		_, err := b.Load(t.Context(), key)
		return err
	})
	var err error
	for err == nil { // a store may report before that every session may have changed
		want(t, idle)
		_, err = a.Load(t.Context(), idle)
	}
	wantError(t, "Load of an expired session", err, replica.ErrNoSession)
	wantSession(t, a, kept, replica.Session{Version: 1})
	wantSession(t, a, changed, replica.Session{Version: 2})
}

// watch returns a function that waits until a change of a session, or of all sessions, is reported.
func watch(s replica.SessionStore) (want func(t *testing.T, key string), stop func()) {
	reported := make(chan string, 1<<10)
	stop = s.Watch(func(key string) { reported <- key })
	return func(t *testing.T, key string) {
		t.Helper()
		for got := receive(t, reported); got != key && got != ""; {
			got = receive(t, reported)
		}
	}, stop
}

func sessionsWatch(t *testing.T, a, b replica.SessionStore) {
	want, stop := watch(b)
	defer stop()
	stopped := b.Watch(func(key string) { t.Errorf("the change of %q is reported after stop", key) })
	stopped()
	must(t, a.Create(t.Context(), "a", replica.Session{}, longIdle))
	for version := uint64(1); version < 9; version += 2 {
		wantSession(t, b, "a", replica.Session{Version: version})
		must(t, a.Update(t.Context(), "a", replica.Session{Version: version}, longIdle))
		want(t, "a")
		must(t, b.Update(t.Context(), "a", replica.Session{Version: version + 1}, longIdle))
		want(t, "a")
	}
	must(t, b.Create(t.Context(), "b", replica.Session{}, longIdle))
	must(t, a.Delete(t.Context(), "b"))
	want(t, "b")
	must(t, b.Delete(t.Context(), "a"))
	want(t, "a")
}

// sessionsCanceled checks that a canceled call makes the whole change or no change.
func sessionsCanceled(t *testing.T, a, b replica.SessionStore) {
	want := replica.Session{Version: 1}
	must(t, a.Create(t.Context(), "a", replica.Session{}, longIdle))
	_, err := a.Load(ended(t), "a")
	update := a.Update(ended(t), "a", want, longIdle)
	for name, err := range map[string]error{
		"Load": err, "Update": update, "Create": a.Create(ended(t), "b", replica.Session{}, longIdle),
		"Keep": a.Keep(ended(t), "a", longIdle), "Delete": a.Delete(ended(t), "c"),
	} {
		if err != nil {
			wantCanceled(t, name, err)
		}
	}
	if update == nil {
		want.Version++
	}
	wantSession(t, b, "a", want)
}
