package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func noConnection(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
	return nil, context.Canceled
}

// The page of an app has the origin that the options name, if the browser has the console at another
// host.
func TestOriginsOfApps(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		o.Connect, o.ViewAddr, o.ViewOrigin = noConnection, "127.0.0.1:0", "https://views.example:443/"
		o.Access = &access.Access{URL: "https://" + publicHost}
	})
	at, err := url.Parse(s.Base)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		publicHost:      "https://" + publicHost + " https://views.example",
		at.Host:         s.Base + " https://views.example",
		"views.example": " ",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host = host
		own, view := s.Console.Origins(r)
		if got := own + " " + view; got != want {
			t.Errorf("at %s: got %q, want %q", host, got, want)
		}
	}
}

func TestOriginsOfAppsAreChecked(t *testing.T) {
	mcptest.NoLeaks(t)
	var admin func(*mcp.Principal) *http.Client
	consoletest.New(t, func(o *console.Options) { admin = o.Admin })
	for origin, public := range map[string]string{
		"http://views.example": "", "https://views.example/x": "", "views": "", "http://127.0.0.1:1": "",
		"https://" + publicHost + ":8443": "https://" + publicHost,
	} {
		c, err := console.New(&console.Options{Addr: "127.0.0.1:0", ViewAddr: "127.0.0.1:0", ViewOrigin: origin,
			Connect: noConnection, Admin: admin, Access: &access.Access{URL: public}})
		if err == nil || !strings.Contains(err.Error(), "invalid origin") {
			t.Errorf("%s: got %v, want an error about the origin", origin, err)
		}
		if err == nil {
			c.Close()
		}
	}
}
