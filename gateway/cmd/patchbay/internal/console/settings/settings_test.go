package settings_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A file is the configuration file of a gateway.
type file struct {
	text, version string
	writes        int
}

// set is gateway.AdminOptions.SetConfig. Each line "run COMMAND" of the text is a command line.
func (f *file) set(_ context.Context, c *gateway.ConfigChange) (*gateway.ConfigResult, error) {
	refuse := func(code string) (*gateway.ConfigResult, error) {
		return nil, &gateway.Problem{Status: http.StatusConflict, Code: code, Detail: "the file: " + code}
	}
	switch {
	case c.Version != f.version:
		return refuse("config_changed")
	case strings.Contains(c.Text, "invalid"):
		return refuse("invalid_config")
	}
	r := &gateway.ConfigResult{File: "/etc/mcp.json", Changed: c.Text != f.text, DryRun: c.DryRun, Version: "2",
		Diff: "--- a\n+++ b\n@@ -1 +1 @@\n-" + f.text + "\n+" + c.Text + "\n", Commands: [][]string{}}
	for line := range strings.Lines(c.Text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "run "); ok {
			r.Commands = append(r.Commands, []string{name, "<x>"})
		}
	}
	if !c.DryRun {
		f.text, f.version, r.Backup = c.Text, "2", "/backup"
		f.writes++
	}
	return r, nil
}

func newSite(t *testing.T, role page.Role, isRemote bool) (*consoletest.Visitor, *file) {
	t.Helper()
	f := &file{text: "old", version: "1"}
	g, _ := consoletest.Gateway(t, `{"mcpServers": {}}`, nil, func(_ *host.Options, a *gateway.AdminOptions) {
		a.URL, a.SetConfig = "http://127.0.0.1:7777/mcp", f.set
		a.Config = func(context.Context) ([]gateway.ConfigFile, error) {
			return []gateway.ConfigFile{{Path: "/etc/mcp.json", Editable: true, Servers: []string{"fs"}, Text: f.text,
				Version: f.version}, {Path: "/project/.mcp.json", Text: "other [masked:0123456789abcdef]"}}, nil
		}
		a.Settings = func(context.Context) ([]gateway.Setting, error) {
			listen := json.RawMessage(`"127.0.0.1:7777"`)
			return []gateway.Setting{{Path: "/listen", Value: listen, Origin: gateway.OriginDefault},
				{Path: "/ops", Value: json.RawMessage(`"127.0.0.1:9464"`), Origin: "/etc/mcp.json"}}, nil
		}
		a.Reload = func(context.Context) (*host.Diff, error) { return &host.Diff{Added: []string{"fs"}}, nil }
	})
	s := consoletest.New(t, func(o *console.Options) {
		o.Admin, o.Gateway = g.AdminClient, true
		if isRemote {
			o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
				return &mcp.Principal{Subject: "ann"}, role, nil
			}
		}
	})
	if isRemote {
		return s.Guest(), f
	}
	return s.Visitor(), f
}

func check(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in %s", w, text)
		}
	}
}

func TestSettingsShowFilesAndValues(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _ := newSite(t, page.RoleViewer, true)
	text := s.See("/settings")
	check(t, text, "/etc/mcp.json", "/project/.mcp.json", "[masked:0123456789abcdef]", "127.0.0.1:9464", ">default<",
		"gateway install --client", "http://127.0.0.1:7777/mcp")
	for _, path := range []string{"/settings/check", "/settings/save", "/settings/reload"} {
		if res, _ := s.Send(http.MethodPost, path, url.Values{}); res.StatusCode != http.StatusForbidden ||
			strings.Contains(text, path) {
			t.Errorf("a viewer may use %s: %d", path, res.StatusCode)
		}
	}
}

// A console without configuration files refers to the pages of its servers, and offers no reload.
func TestSettingsWithoutFiles(t *testing.T) {
	mcptest.NoLeaks(t)
	g, _ := consoletest.Gateway(t, `{"mcpServers": {"fs": {"command": "x"}}}`, nil, nil)
	s := consoletest.New(t, func(o *console.Options) { o.Admin = g.AdminClient })
	text := s.Visitor().See("/settings")
	check(t, text, "reads no configuration file", "/server?server=fs&amp;tab=configuration", "Theme")
	if strings.Contains(text, "/settings/reload") || strings.Contains(text, "/settings/check") {
		t.Errorf("the page offers to read or edit files: %s", text)
	}
}

// An edit is written after its changes were shown, and each new command line was confirmed.
func TestSettingsAreSavedAfterConfirmation(t *testing.T) {
	mcptest.NoLeaks(t)
	s, f := newSite(t, "", false)
	edit := url.Values{"text": {"new\r\nrun npx"}, "version": {"1"}}
	at := s.Post("/settings/check", edit)
	check(t, s.See(at), `class="removed">- old`, `class="added">+ new`,
		"new command lines, addresses or settings", "&lt;x&gt;")
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	save := url.Values{"draft": {u.Query().Get("draft")}}
	res, text := s.Send(http.MethodPost, "/settings/save", save)
	if check(t, text, "unconfirmed_command"); res.StatusCode != http.StatusConflict || f.writes > 0 {
		t.Errorf("without a confirmation: got %d, %d writes", res.StatusCode, f.writes)
	}
	save.Set("command", `["npx","\u003cx\u003e"]`)
	if check(t, s.See(s.Post("/settings/save", save)), "Saved", "/backup"); f.text != "new\nrun npx" || f.writes != 1 {
		t.Errorf("saved: %+v", f)
	}
	res, text = s.Send(http.MethodPost, "/settings/save", save)
	if check(t, text, "config_changed"); res.StatusCode != http.StatusConflict || f.writes != 1 {
		t.Errorf("second save: got %d, %+v", res.StatusCode, f)
	}
	text = s.See(s.Post("/settings/check", url.Values{"text": {"\ninvalid text"}, "version": {"2"}}))
	check(t, text, "the file: invalid_config", `">`+"\n\ninvalid text</textarea>") // browsers drop the first line end
	if strings.Contains(text, "/settings/save") {
		t.Errorf("an invalid text can be saved: %s", text)
	}
	check(t, s.See(s.Post("/settings/check", url.Values{"text": {f.text}, "version": {"2"}})), "does not differ")
	res, text = s.Send(http.MethodPost, "/settings/save", url.Values{"draft": {"x"}})
	if check(t, text, "unchecked_edit"); res.StatusCode != http.StatusConflict {
		t.Errorf("unknown draft: got %d", res.StatusCode)
	}
	check(t, s.See("/settings?draft=x"), "no longer kept")
	check(t, s.See(s.Post("/settings/reload", url.Values{})), "Added servers", "fs")
}

// A person at another machine cannot make the gateway run a program.
func TestRemoteSettingsRefuseNewCommands(t *testing.T) {
	mcptest.NoLeaks(t)
	s, f := newSite(t, page.RoleOperator, true)
	at := s.Post("/settings/check", url.Values{"text": {"run npx"}, "version": {"1"}})
	text := s.See(at)
	check(t, text, "cannot be saved here", "npx")
	if strings.Contains(text, "Save the file") {
		t.Errorf("got a button: %s", text)
	}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	res, text := s.Send(http.MethodPost, "/settings/save",
		url.Values{"draft": {u.Query().Get("draft")}, "command": {`["npx","\u003cx\u003e"]`}})
	if check(t, text, "remote_command"); res.StatusCode != http.StatusForbidden || f.writes > 0 {
		t.Errorf("got %d, %d writes", res.StatusCode, f.writes)
	}
	u, err = url.Parse(s.Post("/settings/check", url.Values{"text": {"no program"}, "version": {"1"}}))
	if err != nil {
		t.Fatal(err)
	}
	check(t, s.See(s.Post("/settings/save", url.Values{"draft": {u.Query().Get("draft")}})), "Saved")
}
