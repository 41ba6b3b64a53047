package root

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newTLSServer returns an HTTPS server that the system does not trust, and the file of its certificate.
func newTLSServer(t *testing.T) (web *httptest.Server, file string) {
	t.Helper()
	h := mcphttp.NewHandler(newServer("demo"), nil)
	web = httptest.NewUnstartedServer(h)
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		if err := h.Shutdown(t.Context()); err != nil {
			t.Log(err)
		}
		web.Close()
	})
	file = filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, file, "comment\n"+string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})))
	return web, file
}

func TestCACertIsTrusted(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	web, file := newTLSServer(t)
	for _, revision := range mcptest.Revisions() {
		args := []string{"call", web.URL + "/mcp", "add", "a=1", "b=2", "--revision", revision}
		o := patchbay(t, "", args...)
		if o.status != exit.Unreachable || !strings.Contains(o.stderr, "certificate signed by unknown authority") ||
			!strings.Contains(o.stderr, "--cacert FILE") {
			t.Errorf("%s without --cacert: got %+v", revision, o)
		}
		if o := patchbay(t, "", append(args, "--cacert", file)...); o.status != exit.OK || o.stdout != "3\n" || o.stderr != "" {
			t.Errorf("%s with --cacert: got %+v", revision, o)
		}
		// With a header that takes the place of a login, too.
		args = append(args, "--cacert", file, "--header", "Authorization: Bearer x")
		if o := patchbay(t, "", args...); o.status != exit.OK {
			t.Errorf("%s with a header: got %+v", revision, o)
		}
	}
}

// The certificates apply to the authorization server, too.
func TestCACertIsTrustedByLogins(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	web, file := newTLSServer(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := protectedAt(t, tls.NewListener(listener, &tls.Config{Certificates: web.TLS.Certificates}),
		"https://"+listener.Addr().String())
	ann := newUserBrowser(t)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	ann.tls = &tls.Config{RootCAs: roots}
	o := withBrowser(t, ann, "call", server, "who_am_i", "--cacert", file)
	if o.status != exit.OK || !strings.Contains(o.stdout, `"user":"ann"`) {
		t.Errorf("got %d, %s, %s", o.status, o.stdout, o.stderr)
	}
	if o := patchbay(t, "", "auth", "logout", server, "--cacert", file); o.status != exit.OK {
		t.Errorf("logout: %+v", o)
	}
	if o := patchbay(t, "", "auth", "login", server, "--no-browser"); o.status == exit.OK ||
		!strings.Contains(o.stderr, "unknown authority") {
		t.Errorf("login without --cacert: %+v", o)
	}
}

func TestInvalidCACertIsExplained(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"": "found no certificate: want PEM", "0\x82\x03": "openssl x509 -inform der",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": `a PEM block "PRIVATE KEY": want CERTIFICATE`,
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "invalid certificate 1: ",
	} {
		file := filepath.Join(dir, "ca.pem")
		writeFile(t, file, text)
		o := patchbay(t, "", "ping", "https://127.0.0.1:1/mcp", "--cacert", file)
		if o.status != exit.Usage || !strings.Contains(o.stderr, "--cacert: "+file+": ") || !strings.Contains(o.stderr, want) {
			t.Errorf("%q: got %+v, want %q", text, o, want)
		}
	}
	for _, args := range [][]string{
		{"ping", "https://127.0.0.1:1/mcp", "--cacert", filepath.Join(dir, "missing")},
		{"ping", "https://127.0.0.1:1/mcp", "--cacert", dir}, {"ping", "--cacert", "x", "--", "server"},
	} {
		if o := patchbay(t, "", args...); o.status != exit.Usage || !strings.Contains(o.stderr, "--cacert") {
			t.Errorf("%q: got %+v", args, o)
		}
	}
}
