package netx

import (
	"net/url"
	"testing"
)

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.9.10": true, "::1": true,
		"::ffff:127.0.0.1": true,
		"":                 false, "localhost.": false, "localhost.example": false, "a.localhost": false,
		"ſlocalhost":        false,
		"localhoſt":         false,
		"127.0.0.1.example": false, "127.1": false, "0.0.0.0": false, "::": false, "::1%lo": false, "10.0.0.1": false,
		"[::1]": false, "128.0.0.1": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) = %t, want %t", host, got, want)
		}
	}
}

func TestIsPort(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "80": true, "65535": true,
		"": false, "0": false, "080": false, "65536": false, "99999": false, "123456": false, "+1": false, "-1": false,
		"8a": false, "٣": false,
	} {
		if got := IsPort(text); got != want {
			t.Errorf("IsPort(%q) = %t, want %t", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"https://a": true, "https://a:1": true, "https://[::1]": true, "https://[::1]:8443": true,
		"https://a:": false, "https://a:0": false, "https://a:70000": false, "https://[::1]:": false,
	} {
		if got := HasValidPort(parse(t, text)); got != want {
			t.Errorf("HasValidPort(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://a", "https://A:443/x?y", true},
		{"http://a", "http://a:80", true},
		{"HTTPS://a", "https://a", true},
		{"https://[::1]", "https://[::1]:443/", true},
		{"https://a", "http://a", false},
		{"https://a", "https://a:8443", false},
		{"https://a", "https://a.", false},
		{"https://a", "https://b", false},
	} {
		a, b := parse(t, c.a), parse(t, c.b)
		if got := SameOrigin(a, b); got != c.want {
			t.Errorf("SameOrigin(%s, %s) = %t, want %t", a, b, got, c.want)
		}
	}
}

func TestHostPortAndOrigin(t *testing.T) {
	for text, want := range map[string][2]string{
		"https://Example.com/x?y":  {"example.com:443", "https://Example.com"},
		"http://example.com:8080":  {"example.com:8080", "http://example.com:8080"},
		"https://[FD00::1]/":       {"[fd00::1]:443", "https://[FD00::1]"},
		"https://user@example.com": {"example.com:443", "https://example.com"},
	} {
		u := parse(t, text)
		if got := [2]string{HostPort(u), Origin(u)}; got != want {
			t.Errorf("%s: HostPort and Origin are %q, want %q", text, got, want)
		}
	}
}

func TestIsToken(t *testing.T) {
	for text, want := range map[string]bool{
		"Bearer": true, "Mcp-Param-X": true, "!#$%&'*+-.^_`|~09": true,
		"": false, "a b": false, "a:b": false, "é": false, "a\n": false, `"a"`: false, "@": false, "[": false,
	} {
		if got := IsToken(text); got != want {
			t.Errorf("IsToken(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestPathContains(t *testing.T) {
	for _, c := range []struct {
		parent, path string
		want         bool
	}{
		{"", "/mcp", true}, {"/", "/mcp", true}, {"/mcp", "/mcp", true}, {"/mcp", "/mcp/", true}, {"/mcp/",
			"/mcp", true},
		{"/mcp", "/mcp/a/b", true}, {"/mcp", "/mcpx", false}, {"/mcp", "/", false}, {"/mcp", "/mcp/../x", false},
		{"/mcp", "/mcp/%2E%2e/x", false}, {"/mcp", "/mcp/.", false}, {"/mcp", "/mcp/...", true}, {"/a/..",
			"/a/..", true},
	} {
		if got := PathContains(c.parent, c.path); got != c.want {
			t.Errorf("PathContains(%q, %q) = %t, want %t", c.parent, c.path, got, c.want)
		}
	}
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
