package postgres_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestHostState(t *testing.T) {
	storetest.RunHostState(t, func(t *testing.T) (state.Store, state.Store) {
		a, b := openTwo(t)
		return a.HostState(), b.HostState()
	})
}

func TestLogins(t *testing.T) {
	storetest.RunLogins(t, func(t *testing.T) (oauthclient.Store, oauthclient.Store) {
		a, b := openTwo(t)
		return a.Logins("alice"), b.Logins("alice")
	})
}
