package keys_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The page after the creation is the only page with the secret.
func TestSecretIsShownOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	v := consoletest.New(t, nil).Visitor()
	if text := v.See("/keys"); !strings.Contains(text, "No keys yet") || !strings.Contains(text, "Create key") {
		t.Errorf("without keys: got %s", text)
	}
	res, text := v.Send(http.MethodPost, "/keys", url.Values{"name": {"build"}, "server": {"fs"}, "only": {"call"},
		"readonly": {"1"}, "expires": {"12h"}, "console": {"viewer"}})
	secret := regexp.MustCompile(gateway.KeyPrefix + "[a-z2-7]+").FindString(text)
	if res.StatusCode != http.StatusOK || secret == "" || res.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("create: got %d, %v, %s", res.StatusCode, res.Header, text)
	}
	text = v.See("/keys")
	for _, want := range []string{"build", "fs; only tools; read-only tools", "<td>viewer</td>", "Revoke build"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
	if strings.Contains(text, secret) {
		t.Error("the list contains the secret")
	}
	res, text = v.Send(http.MethodPost, "/keys", url.Values{"name": {"build"}, "server": {"fs"}})
	if role, _ := v.Send(http.MethodPost, "/keys", url.Values{"name": {"x"}, "console": {"root"}}); role.StatusCode !=
		http.StatusBadRequest {
		t.Errorf("an unknown role: got %d, want 400", role.StatusCode)
	}
	if res.StatusCode != http.StatusConflict || !strings.Contains(text, "revoke it, or choose another name") ||
		!strings.Contains(text, `value="build"`) || !strings.Contains(text, `value="fs" checked`) {
		t.Errorf("create again: got %d, %s, want the form with its values", res.StatusCode, text)
	}
	if to := v.Post("/keys/revoke", url.Values{"key": {"build"}}); to != "/keys" {
		t.Errorf("revoke: went to %s", to)
	}
	if text := v.See("/keys"); !strings.Contains(text, "No keys yet") {
		t.Errorf("after the revocation: got %s", text)
	}
}

// A viewer sees the keys, and cannot change them.
func TestViewerChangesNoKeys(t *testing.T) {
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann"}, page.RoleViewer, nil
		}
	})
	if _, err := s.Keys.Create(t.Context(), gateway.Key{Name: "build"}); err != nil {
		t.Fatal(err)
	}
	b := s.Stranger()
	_, text := s.Send(b, http.MethodGet, "/keys", nil)
	if !strings.Contains(text, "build") || strings.Contains(text, "Create key") || strings.Contains(text, "Revoke") {
		t.Errorf("got %s", text)
	}
	for _, path := range []string{"/keys", "/keys/revoke"} {
		if res, _ := s.Send(b, http.MethodPost, path, url.Values{"name": {"x"}, "key": {"build"}}); res.StatusCode !=
			http.StatusForbidden {
			t.Errorf("POST %s: got %d, want 403", path, res.StatusCode)
		}
	}
}

// A remote operator is offered no role, and the gateway refuses a role in a forged form.
func TestRemoteOperatorGrantsNoRole(t *testing.T) {
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann"}, page.RoleOperator, nil
		}
	})
	b := s.Stranger()
	_, text := s.Send(b, http.MethodGet, "/keys", nil)
	if !strings.Contains(text, "Create key") || strings.Contains(text, `<option value="operator"`) {
		t.Errorf("got %s", text)
	}
	res, text := s.Send(b, http.MethodPost, "/keys", url.Values{"name": {"x"}, "console": {"viewer"}})
	if res.StatusCode != http.StatusForbidden || !strings.Contains(text, "on the machine of the gateway") {
		t.Errorf("got %d, %s", res.StatusCode, text)
	}
}

// unsupported is a client of a gateway without keys.
type unsupported struct{ http.RoundTripper }

func (u unsupported) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/keys") {
		return u.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusNotImplemented, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(`{"status":501,"code":"unsupported","detail":"no keys"}`))}, nil
}

func TestConsoleWithoutKeysHasNoScreen(t *testing.T) {
	v := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client {
			return &http.Client{Transport: unsupported{admin(p).Transport}}
		}
	}).Visitor()
	if text := v.See("/"); strings.Contains(text, `href="/keys"`) {
		t.Errorf("the navigation contains the screen: %s", text)
	}
	if res, _ := v.Send(http.MethodGet, "/keys", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("got %d, want 404", res.StatusCode)
	}
}
