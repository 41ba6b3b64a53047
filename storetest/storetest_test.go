package storetest_test

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

func TestStates(t *testing.T) {
	storetest.RunStates(t, func(*testing.T) (a, b mcp.OnceStore) {
		s := newMemory()
		return s, s
	})
}

// A memory is a correct [mcp.OnceStore].
type memory struct {
	mu     sync.Mutex // guards the fields below
	states map[string]memoryState
	used   map[string]time.Time
}

type memoryState struct {
	data    []byte
	expires time.Time
}

func newMemory() *memory {
	return &memory{states: map[string]memoryState{}, used: map[string]time.Time{}}
}

func (m *memory) Put(_ context.Context, key string, state []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[key] = memoryState{bytes.Clone(state), expires}
	return nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[key]
	if !time.Now().Before(s.expires) {
		return nil, nil
	}
	return bytes.Clone(s.data), nil
}

func (m *memory) Once(_ context.Context, key string, expires time.Time) (first bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end, used := m.used[key]; used && time.Now().Before(end) {
		return false, nil
	}
	m.used[key] = expires
	return true, nil
}
