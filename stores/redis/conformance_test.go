package redis_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	taskstest "github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	authtest "github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/redis"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestEvents(t *testing.T) {
	storetest.RunEvents(t, func(t *testing.T) (mcphttp.EventStore, mcphttp.EventStore) {
		a, b := openTwo(t)
		return a.Events(), b.Events()
	})
}

func TestHostState(t *testing.T) {
	storetest.RunHostState(t, func(t *testing.T) (state.Store, state.Store) {
		a, b := openTwo(t)
		return a.HostState(), b.HostState()
	})
}

func TestLimits(t *testing.T) {
	storetest.RunLimits(t, func(t *testing.T) (state.LimitStore, state.LimitStore) {
		a, b := openTwo(t)
		return a.Limits(), b.Limits()
	})
}

func TestLeases(t *testing.T) {
	storetest.RunLeases(t, func(t *testing.T) (replica.LeaseStore, replica.LeaseStore) {
		a, b := openTwo(t)
		return a.Leases(), b.Leases()
	})
}

func TestLogins(t *testing.T) {
	storetest.RunLogins(t, func(t *testing.T) (oauthclient.Store, oauthclient.Store) {
		a, b := openTwo(t)
		return a.Logins("alice"), b.Logins("alice")
	})
}

func TestTasks(t *testing.T) {
	url := need(t).url()
	taskstest.RunLasting(t, func(t *testing.T, dir string) tasks.Store {
		return open(t, url, calm()).Tasks(dir)
	})
}

func TestAuthorization(t *testing.T) {
	url := need(t).url()
	openDir := func(dir string) (authserver.Store, error) {
		opts := calm()
		opts.Prefix = "auth" + dir
		s, err := redis.Open(t.Context(), url, opts)
		if err != nil {
			return nil, err
		}
		t.Cleanup(s.Close)
		return s.Authorization(), nil
	}
	authtest.RunLasting(t, openDir)
	authtest.RunShared(t, openDir)
}

func TestSessionsAndBus(t *testing.T) { runReplicas(t, need(t).url()) }

// runReplicas tests the stores that replicas share.
func runReplicas(t *testing.T, url string) {
	t.Run("sessions", func(t *testing.T) {
		storetest.RunSessions(t, func(t *testing.T) (replica.SessionStore, replica.SessionStore) {
			a, b := openTwoOf(t, url)
			return a.Sessions(), b.Sessions()
		})
	})
	t.Run("bus", func(t *testing.T) {
		storetest.RunBus(t, func(t *testing.T) (replica.Bus, replica.Bus) {
			a, b := openTwoOf(t, url)
			return a.Bus(), b.Bus()
		})
	})
}
