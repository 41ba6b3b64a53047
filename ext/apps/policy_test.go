package apps_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
)

// Requirement: UI-03
func TestPolicyOfSpecification(t *testing.T) {
	const least = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
		"font-src 'self'; media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; base-uri 'self'; form-action 'none'"
	if got := (apps.CSP{}).Policy(); got != least {
		t.Errorf("policy of a view without domains\n%s", got)
	}
	got := apps.CSP{
		ConnectDomains:  []string{"https://API.example.com", "wss://live.example.com:8443", "https://api.example.com"},
		ResourceDomains: []string{"https://*.cdn.example.com"},
		FrameDomains:    []string{"https://video.example.com", "https://a.b/ https://c.d"},
		BaseURIDomains:  []string{"https://base.example.com", "'unsafe-inline'"},
	}.Policy()
	const cdn = " https://*.cdn.example.com"
	const want = "default-src 'none'; script-src 'self' 'unsafe-inline'" + cdn + "; style-src 'self' 'unsafe-inline'" + cdn +
		"; img-src 'self' data:" + cdn + "; font-src 'self'" + cdn + "; media-src 'self' data:" + cdn +
		"; connect-src https://api.example.com wss://live.example.com:8443; frame-src https://video.example.com; object-src 'none'" +
		"; base-uri https://base.example.com; form-action 'none'"
	if got != want {
		t.Errorf("policy\n%s\nwant\n%s", got, want)
	}
}

func TestOriginsAreParsedStrictly(t *testing.T) {
	good := []string{
		"https://example.com", "https://example.com:8443", "https://*.example.com", "https://xn--bcher-kva.example", "HTTPS://Example.com",
		"http://localhost:3000", "http://127.0.0.1", "https://127.0.0.1:9", "http://app.localhost", "https://a-b.example.com",
	}
	bad := []string{
		"", "*", "https:", "https://", "https://*", "https://*.", "https://*.com", "https://*.127.0.0.1", "https://**.example.com",
		"https://a.*.example.com", "//example.com", "example.com", "http://example.com", "ws://example.com", "ftp://example.com",
		"data:", "blob:", "'self'", "'unsafe-inline'", "'nonce-x'", "javascript://example.com", "https://example.com/path",
		"https://example.com?x", "https://example.com#x", "https://user@example.com", "https://example.com:", "https://example.com:0",
		"https://example.com:65536", "https://example.com:*", "https://example.com:+1", "https://example.com:01", "https://example.com.",
		"https://.example.com", "https://-a.example.com", "https://a-.example.com", "https://exa mple.com", "https://example.com;",
		"https://example.com,", "https://example.com\n", "https://example.com\x00", "https://bücher.example", "https://1.2.3.4",
		"https://2130706433", "https://0x7f.1", "https://127.1", "https://0x7f000001", "https://[::1]", "https://example.com https://b.com",
		"https://" + strings.Repeat("a", 64) + ".com", "https://" + strings.Repeat("a.", 130) + "com",
		" https://example.com",
	}
	const none = "'none'"
	source := func(origin string) string {
		_, rest, _ := strings.Cut(apps.CSP{FrameDomains: []string{origin}}.Policy(), "frame-src ")
		first, _, _ := strings.Cut(rest, ";")
		return first
	}
	for _, origin := range good {
		if got := source(origin); got != strings.ToLower(origin) {
			t.Errorf("source %q became %q", origin, got)
		}
	}
	for _, origin := range bad {
		if got := source(origin); got != none {
			t.Errorf("source %q became %q", origin, got)
		}
	}
}
