package apps_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

const (
	clockURI  = "ui://clock/face"
	clockHTML = "<!DOCTYPE html>\n<title>clock</title><script>/* ticks */</script>"
)

// clockFrame is the Frame of the clock's view.
func clockFrame() apps.Frame {
	border := true
	return apps.Frame{
		CSP: apps.CSP{
			ConnectDomains:  []string{"https://api.example.com", "wss://live.example.com"},
			ResourceDomains: []string{"https://*.cdn.example.com"},
		},
		Permissions:   apps.Permissions{Geolocation: true, ClipboardWrite: true},
		Domain:        "clock.host.example",
		PrefersBorder: &border,
	}
}

type clockInput struct {
	Zone string `json:"zone"`
}

// newClock returns a server with one view, and a tool of each visibility.
func newClock(t testing.TB) *mcp.Server {
	t.Helper()
	s := newServer(t)
	views := apps.New(s)
	views.Add(&apps.View{URI: clockURI, Name: "clock", Title: "Clock", Frame: clockFrame()}, clockHTML)
	tellTime := func(ctx context.Context, in clockInput) (*mcp.CallToolResult, error) {
		text := "noon in " + in.Zone
		if apps.Supported(ctx) {
			text = "shown"
		}
		return &mcp.CallToolResult{
			Content:           []mcp.ContentBlock{mcp.Text(text)},
			StructuredContent: map[string]string{"zone": in.Zone},
			Meta:              mcp.Meta{"example.com/stamp": "12:00"},
		}, nil
	}
	for name, visibility := range map[string][]apps.Visibility{
		"time": nil, "ask": {apps.VisibilityModel}, "refresh": {apps.VisibilityApp},
	} {
		mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: name}, &apps.ToolUI{View: clockURI, Visibility: visibility}), tellTime)
	}
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, tellTime)
	return s
}

func newServer(t testing.TB) *mcp.Server {
	t.Helper()
	return mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: logger(t)})
}

func logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// runOn runs a test with a client for each combination.
func runOn(t *testing.T, all []mcptest.Combination, h mcp.Handler, opts *mcp.ClientOptions, test func(t *testing.T,
	c *mcp.Client),
) {
	t.Helper()
	for _, on := range all {
		t.Run(on.String(), func(t *testing.T) { test(t, mcptest.Dial(t, h, on, opts)) })
	}
}

// modernInMemory is one combination, for tests that need no other.
var modernInMemory = mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}

// asJSON returns a decoded value for comparison.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(plain); err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func wantJSON(t testing.TB, what string, got any, want string) {
	t.Helper()
	if got, want := asJSON(t, got), asJSON(t, json.RawMessage(want)); got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// panics returns the value of f's panic as text.
func panics(t testing.TB, f func()) (text string) {
	t.Helper()
	defer func() {
		text, _ = recover().(string)
		if !strings.HasPrefix(text, "apps: ") {
			t.Errorf("panic %q, want one of apps", text)
		}
	}()
	f()
	return ""
}
