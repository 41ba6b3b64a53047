package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A onceStore is a stateStore that remembers which states were used.
type onceStore struct {
	stateStore
	mu   sync.Mutex
	used map[string]time.Time
	err  error
}

func (m *onceStore) Once(_ context.Context, key string, expires time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, used := m.used[key]; used || m.err != nil {
		return false, m.err
	}
	m.used[key] = expires
	return true, nil
}

func newOnceStore() *onceStore {
	return &onceStore{stateStore: stateStore{states: map[string][]byte{}}, used: map[string]time.Time{}}
}

// Requirement: MRTR-12, MRTR-14
func TestRequestStateIsAcceptedOnce(t *testing.T) {
	store := newOnceStore()
	p := newHandlerPeer(t, &mcp.ServerOptions{StateStore: store, StateTTL: time.Hour, Logger: discardLogger()}, askName)
	asked := p.call("t", "", "", "")
	wantRefused(t, "other arguments", p.call("t", `{"x":1}`, adaAnswers, asked.RequestState))
	if r := p.call("t", "", adaAnswers, asked.RequestState); r.text() != "Ada" {
		t.Errorf("first use after a refused one: got %+v, want Ada", r)
	}
	wantRefused(t, "second use", p.call("t", "", adaAnswers, asked.RequestState))
	for _, expires := range store.used {
		if left := time.Until(expires); left > time.Hour || left < 50*time.Minute {
			t.Errorf("the use is remembered for %v, want an hour", left)
		}
	}
	asked = p.call("t", "", "", "")
	store.err = errors.New("disk gone")
	if r := p.call("t", "", adaAnswers, asked.RequestState); r.Err == nil || r.Err.Message != "internal error" {
		t.Errorf("failing store: got %+v, want an internal error", r)
	}
}

// Middleware may run a handler twice for one request, and several rounds have a state each.
//
// Requirement: MRTR-14
func TestRoundsAndRepeatedRunsUseTheirStateOnce(t *testing.T) {
	repeat := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if _, err := next.ServeMCP(ctx, req); err != nil {
				return nil, err
			}
			return next.ServeMCP(ctx, req)
		})
	}
	s := newServer(t, &mcp.ServerOptions{StateStore: newOnceStore(), Middleware: []mcp.Middleware{repeat}})
	addTool(s, "t", func(ctx context.Context) (string, error) {
		for _, key := range []string{"a", "b", "c"} {
			if _, err := mcp.Ask[struct{}](ctx, key, "Go on?", nil); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	mcptest.RunOn(t, s, mcptest.Since("2025-06-18"), nil, func(t *testing.T, c *mcptest.Client) {
		if got := callTool(t, c, "t", nil).text(); got != "done" {
			t.Errorf("got %q, want done", got)
		}
	})
}

// Requirement: MRTR-12
func TestKeysAreReplacedWhileServing(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	p := newHandlerPeer(t, &mcp.ServerOptions{StateKeys: [][]byte{key('1')}}, askName)
	s := p.handler.(*mcp.Server)
	replace := func(keys ...[]byte) {
		t.Helper()
		if err := s.ReplaceStateKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	asked := p.call("t", "", "", "").RequestState
	for what, keys := range map[string][][]byte{"no keys": nil, "a short key": {key('2'), []byte("short")}} {
		if err := s.ReplaceStateKeys(keys); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	replace(key('2'), key('1'))
	if r := p.call("t", "", adaAnswers, asked); r.text() != "Ada" {
		t.Errorf("state of the previous key: got %+v, want Ada", r)
	}
	fresh := p.call("t", "", "", "").RequestState
	replace(key('2'))
	if r := p.call("t", "", adaAnswers, fresh); r.text() != "Ada" {
		t.Errorf("state of the first key: got %+v, want Ada", r)
	}
	wantRefused(t, "state of a removed key", p.call("t", "", adaAnswers, asked))
}
