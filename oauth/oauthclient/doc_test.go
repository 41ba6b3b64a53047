package oauthclient_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The tests of this file run the code of the doc comments.

// TestDocLogin logs in with this test binary as the browser.
func TestDocLogin(t *testing.T) {
	if browserCommand == "" {
		t.Skip("the browser of this system cannot be replaced")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, browserCommand)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	server := newExampleServer()
	defer server.Close()
	ctx, url := t.Context(), server.URL+"/mcp"
	login := oauthclient.NewTransport(url, &oauthclient.TransportOptions{
		Authorizer: oauthclient.NewBrowser(nil),
	})
	client := &http.Client{Transport: login}
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, &mcphttp.TransportOptions{Client: client}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer login.CloseIdleConnections()
	defer c.Close()
	if name := c.ServerInfo().Name; name != "hello" {
		t.Errorf("got server %q", name)
	}
}

func TestDocGrant(t *testing.T) {
	t.Setenv("CLIENT_SECRET", "secret")
	server := newMachineExampleServer()
	defer server.Close()
	ctx, endpoint, issuer := t.Context(), server.URL+"/mcp", server.URL
	login := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{
		Grant:  oauthclient.NewClientCredentialsGrant(),
		Client: oauthclient.Identity{ID: "nightly", Secret: os.Getenv("CLIENT_SECRET"), Issuer: issuer},
	})
	defer login.CloseIdleConnections()
	client := &http.Client{Transport: login}
	transport := mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{Client: client})
	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Extensions: login.Extensions()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	declared, err := mcp.CallTool[[]string](ctx, c, "extensions", nil)
	if err != nil || !slices.Equal(declared, []string{oauthclient.ExtensionClientCredentials}) {
		t.Errorf("got %v, %v", declared, err)
	}
}
