package postgres_test

import (
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	taskstest "github.com/patchbay-mcp/patchbay/ext/tasks/storetest"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	authtest "github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
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

func TestTasks(t *testing.T) {
	need(t)
	opts := newSchema()
	taskstest.RunLasting(t, func(t *testing.T, dir string) tasks.Store {
		return open(t, shared.url(), opts).Tasks(dir)
	})
}

func TestAuthorization(t *testing.T) {
	url := need(t).url()
	var schemas sync.Map // by directory
	openDir := func(dir string) (authserver.Store, error) {
		opts, _ := schemas.LoadOrStore(dir, newSchema())
		s, err := postgres.Open(t.Context(), url, opts.(*postgres.Options))
		if err != nil {
			return nil, err
		}
		t.Cleanup(s.Close)
		return s.Authorization(), nil
	}
	authtest.RunLasting(t, openDir)
	authtest.RunShared(t, openDir)
}
