package netx_test

import (
	"net/url"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

func TestLocalHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.9.10": true, "::1": true,
		"::ffff:127.0.0.1": true,
		"":                 false, "localhost.": false, "localhost.example": false, "a.localhost": false,
		"ſlocalhost": false, "localhoſt": false, "localhoſ": false, "locaſhos": false, "localhozt": false,
		"127.0.0.1.example": false, "127.1": false, "0.0.0.0": false, "::": false, "::1%lo": false, "10.0.0.1": false,
		"[::1]": false, "128.0.0.1": false,
	} {
		if got := netx.IsLocalHost(host); got != want {
			t.Errorf("IsLocalHost(%q) = %t, want %t", host, got, want)
		}
	}
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "80": true, "65535": true,
		"": false, "0": false, "080": false, "65536": false, "99999": false, "123456": false, "+1": false, "-1": false,
		"8a": false, "1_0": false, "٣": false,
	} {
		if got := netx.ValidPort(text); got != want {
			t.Errorf("ValidPort(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestURLsOfHTTP(t *testing.T) {
	for text, want := range map[string]bool{
		"https://a": true, "http://a:1/x": true, "https://[::1]": true, "https://[::1]:8443": true,
		"https://a:": false, "https://a:0": false, "https://a:70000": false, "https://[::1]:": false,
		"ftp://a": false, "https:///x": false, "https:a": false, "//a": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := netx.IsHTTP(u); got != want {
			t.Errorf("IsHTTP(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestOrigins(t *testing.T) {
	for text, want := range map[string]bool{
		"https://views.example": true, "https://views.example:8443/": true, "http://127.0.0.1:6281": true,
		"http://[::1]:1": true, "http://localhost": true,
		"http://views.example": false, "https://views.example/path": false, "https://a:b@views.example": false,
		"https://views.example?x": false, "https://views.example#": false, "https://": false, "views.example": false,
		"https://views.example:0": false, "ftp://views.example": false, "": false,
	} {
		if got := netx.IsOrigin(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
	const first = "https://a.example"
	if !netx.SameHost(first, "http://A.example:81") || netx.SameHost(first, "https://b.example") {
		t.Error("the hosts of URLs are not compared without case and port")
	}
}
