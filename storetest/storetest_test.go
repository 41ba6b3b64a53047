package storetest_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

func TestHostState(t *testing.T) {
	storetest.RunHostState(t, func(*testing.T) (a, b state.Store) {
		s := &state.Memory{}
		return s, s
	})
}

func TestSessions(t *testing.T) {
	storetest.RunSessions(t, func(*testing.T) (a, b replica.SessionStore) {
		m := &replica.Memory{}
		return m, m
	})
}

func TestBus(t *testing.T) {
	storetest.RunBus(t, func(*testing.T) (a, b replica.Bus) {
		m := &replica.Memory{}
		return m, m
	})
}

func TestLeases(t *testing.T) {
	storetest.RunLeases(t, func(*testing.T) (a, b replica.LeaseStore) {
		m := &replica.Memory{}
		return m, m
	})
}
