package oauthclient_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestMemoryStoreConforms(t *testing.T) {
	storetest.RunLogins(t, func(*testing.T) (a, b oauthclient.Store) {
		s := oauthclient.NewMemoryStore()
		return s, s
	})
}
