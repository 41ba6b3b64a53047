package oauthfetch_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
)

// Requirement: SEC-08
func TestScopeOfAddresses(t *testing.T) {
	for scope, addresses := range map[string][]string{
		"public": {
			"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
			"128.0.0.0",
			"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0",
			"192.167.255.255",
			"192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
			"2606:4700::1111", "2a00::1", "2001:200::1", "2001:db7::1", "2003::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
		},
		"private": {
			"10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "172.16.0.0", "172.31.255.255",
			"192.168.0.0",
			"192.168.255.255", "fc00::1", "fdff::1", "::ffff:10.0.0.1",
		},
		"loopback": {"127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"},
		"special-purpose": {
			"0.0.0.0", "0.255.255.255", "169.254.0.0", "169.254.169.254", "169.254.255.255", "192.0.0.0", "192.0.0.192",
			"192.0.2.1", "192.88.99.1", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.0",
			"239.255.255.255", "240.0.0.0", "255.255.255.255", "100.100.100.200", "168.63.129.16",
			"::", "fe80::1", "fe80::1%eth0", "feb0::1", "fec0::1", "ff02::1", "100::1", "2001::1", "2001:db8::1",
			"2002:7f00:1::",
			"2002:808:808::", "3fff::1", "4000::1", "5f00::1", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42",
			"::ffff:169.254.169.254", "::ffff:0.0.0.0", "::7f00:1", "::a00:1",
			"64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
		},
	} {
		for _, text := range addresses {
			if got := oauthfetch.ScopeOf(netip.MustParseAddr(text)).String(); got != scope {
				t.Errorf("%s: got scope %s, want %s", text, got, scope)
			}
		}
	}
	if got := oauthfetch.ScopeOf(netip.Addr{}).String(); got != "special-purpose" {
		t.Errorf("zero address: got scope %s, want special-purpose", got)
	}
}

// Requirement: SEC-08, SEC-17
func TestRefusedURLs(t *testing.T) {
	f := oauthtest.NewNetwork(t).Fetcher(nil)
	for _, text := range refusedURLs(t) {
		if _, err := f.CheckURL(text); !errors.Is(err, oauthfetch.ErrURLRefused) {
			t.Errorf("%.80q: got error %v, want ErrURLRefused", text, err)
		}
	}
	for _, text := range []string{
		"https://as.example", "https://as.example/", "HTTPS://AS.EXAMPLE/x", "https://as.example:8443/x?y=z",
		"https://8.8.8.8/x",
		"https://[2606:4700::1111]/x", "https://as.example/" + strings.Repeat("x",
			oauthfetch.MaxURL-len("https://as.example/")), "https://xn--exmple-cua.example/",
	} {
		if _, err := f.CheckURL(text); err != nil {
			t.Errorf("%.80q: got error %v, want success", text, err)
		}
	}
}

// The address of the MCP server limits which addresses may be fetched for it.
//
// Requirement: SEC-07
func TestScopeOfSource(t *testing.T) {
	const (
		public       = iota // public addresses only
		private             // private addresses too
		loopback            // loopback addresses too, with https
		loopbackHTTP        // loopback addresses too, with http
	)
	for _, tt := range []struct {
		endpoint string
		names    map[string][]string
		scope    int
	}{
		{"https://mcp.example/mcp", nil, public},
		{"https://8.8.8.8/mcp", nil, public},
		{"https://mcp.corp/mcp", map[string][]string{"mcp.corp": {"10.1.2.3"}}, private},
		{"https://mcp.corp/mcp", map[string][]string{"mcp.corp": {"10.1.2.3", "fd00::1", "100.64.0.1"}}, private},
		{"https://mcp.corp/mcp", map[string][]string{"mcp.corp": {"10.1.2.3", "8.8.8.8"}}, public},
		{"https://mcp.corp/mcp", map[string][]string{"mcp.corp": {"127.0.0.1", "10.0.0.1"}}, private},
		{"https://mcp.corp/mcp", map[string][]string{"mcp.corp": {"169.254.169.254"}}, public},
		{"https://10.1.2.3/mcp", nil, private},
		{"https://mcp.test/mcp", map[string][]string{"mcp.test": {"127.0.0.1", "::1"}}, loopback},
		{"http://mcp.test/mcp", map[string][]string{"mcp.test": {"127.0.0.1"}}, loopback},
		{"https://localhost/mcp", nil, loopbackHTTP},
		{"http://localhost:8000/mcp", nil, loopbackHTTP},
		{"http://LOCALHOST:8000/mcp", nil, loopbackHTTP},
		{"http://127.0.0.1:8000/mcp", nil, loopbackHTTP},
		{"http://127.1.2.3:8000/mcp", nil, loopbackHTTP},
		{"http://[::1]:8000/mcp", nil, loopbackHTTP},
		{"http://localhost.evil.example/mcp", nil, public},
		{"http://127.0.0.1.evil.example/mcp", nil, public},
	} {
		t.Run(tt.endpoint, func(t *testing.T) {
			w := oauthtest.NewNetwork(t)
			for name, addresses := range tt.names {
				w.At(name, addresses...)
			}
			w.At("idp.corp", "10.9.9.9")
			w.At("here.test", "127.0.0.1")
			w.At("cloud.test", "169.254.169.254")
			endpoint, err := url.Parse(tt.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			f := w.Fetcher(nil).For(endpoint)
			for address, needs := range map[string]int{
				"https://as.example/doc":     public,
				"https://idp.corp/doc":       private,
				"https://192.168.1.1/doc":    private,
				"https://here.test/doc":      loopback,
				"https://localhost:8443/doc": loopback,
				"https://127.0.0.1:8443/doc": loopback,
				"http://localhost:8000/doc":  loopbackHTTP,
				"http://127.0.0.1:8000/doc":  loopbackHTTP,
				"http://here.test:8000/doc":  loopbackHTTP + 1,
				"http://idp.corp:8000/doc":   loopbackHTTP + 1,
				"http://as.example:80/doc":   loopbackHTTP + 1,
				"https://cloud.test/doc":     loopbackHTTP + 1,
				"https://169.254.169.254/":   loopbackHTTP + 1,
			} {
				w.Doc(address, "{}")
				err := getJSON(t, f, address, new(document))
				if open := tt.scope >= needs; open != (err == nil) || !open &&
					!errors.Is(err, oauthfetch.ErrURLRefused) {
					t.Errorf("%s: got error %v, want success %t", address, err, open)
				}
			}
		})
	}
}

func TestAllowedHostsMayHaveAnyAddress(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	w.At("idp.corp", "10.9.9.9")
	w.At("other.corp", "10.9.9.10")
	f := w.Fetcher(&oauthfetch.Options{AllowedHosts: []string{"IDP.corp", "other.corp:8443", "[::1]", "10.7.7.7"}})
	for address, ok := range map[string]bool{
		"https://idp.corp/doc":        true,
		"https://idp.corp:8443/doc":   true,
		"https://Idp.Corp/doc":        true,
		"https://other.corp:8443/doc": true,
		"https://other.corp/doc":      false,
		"https://10.9.9.9/doc":        false,
		"https://10.7.7.7/doc":        true,
		"https://[::1]/doc":           true,
		"http://idp.corp/doc":         false,
		"https://x.idp.corp/doc":      true, // at a public address
		"https://here.idp.corp/doc":   false,
	} {
		w.At("here.idp.corp", "10.0.0.1")
		w.Doc(address, "{}")
		if err := getJSON(t, f, address, new(document)); (err == nil) != ok {
			t.Errorf("%s: got error %v, want success %t", address, err, ok)
		}
	}
}

func TestInsecureAnyAddress(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	f := w.Fetcher(&oauthfetch.Options{InsecureAnyAddress: true})
	for _, address := range []string{"https://127.0.0.1/doc", "http://10.0.0.1:8000/doc",
		"http://as.example:8000/doc"} {
		w.Doc(address, "{}")
		if err := getJSON(t, f, address, new(document)); err != nil {
			t.Errorf("%s: got error %v, want success", address, err)
		}
	}
	for _, address := range []string{"ftp://127.0.0.1/doc", "https://user@as.example/doc"} {
		if err := getJSON(t, f, address, new(document)); !errors.Is(err, oauthfetch.ErrURLRefused) {
			t.Errorf("%s: got error %v, want ErrURLRefused", address, err)
		}
	}
}

// A name may resolve to another address each time: the address of the connection is checked.
//
// Requirement: SEC-08
func TestDNSRebinding(t *testing.T) {
	const public, inside = "8.8.8.8", "10.0.0.7"
	t.Run("of an authorization server", func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.Doc("https://rebind.example/doc", "{}")
		w.Next("rebind.example", public, inside, "127.0.0.1")
		f := w.Fetcher(nil)
		if err := getJSON(t, f, "https://rebind.example/doc", new(document)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := getJSON(t, f, "https://rebind.example/doc", new(document))
			if !errors.Is(err, oauthfetch.ErrURLRefused) {
				t.Errorf("got error %v, want ErrURLRefused", err)
			}
		}
	})
	t.Run("of the MCP server, to let others be private", func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.At("intranet.corp", inside)
		w.Doc("https://intranet.corp/doc", "{}")
		w.Doc("https://rebind.example/doc", "{}")
		// The first lookup determines the scope of the server, the second is for its document.
		w.Next("rebind.example", inside, public)
		endpoint, _ := url.Parse("https://rebind.example/mcp")
		f := w.Fetcher(nil).For(endpoint)
		if err := getJSON(t, f, "https://intranet.corp/doc", new(document)); err != nil {
			t.Fatal(err) // the server is private so far
		}
		err := getJSON(t, f, "https://rebind.example/doc", new(document))
		if !errors.Is(err, oauthfetch.ErrURLRefused) {
			t.Errorf("public server that was private before: got error %v, want ErrURLRefused", err)
		}
	})
	t.Run("of the MCP server, to become private", func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.Doc("https://rebind.example/doc", "{}")
		w.Next("rebind.example", public, public, inside)
		endpoint, _ := url.Parse("https://rebind.example/mcp")
		f := w.Fetcher(nil).For(endpoint)
		for i, ok := range []bool{true, false} {
			if err := getJSON(t, f, "https://rebind.example/doc", new(document)); (err == nil) != ok {
				t.Errorf("request %d: got error %v, want success %t", i, err, ok)
			}
		}
	})
	t.Run("of a server that moves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := oauthtest.NewNetwork(t)
			w.Doc("https://moves.corp/doc", "{}")
			endpoint, _ := url.Parse("https://moves.corp")
			f := w.Fetcher(nil).For(endpoint)
			for _, at := range []string{"10.0.0.1", "8.8.8.8", "10.0.0.2"} {
				w.At("moves.corp", at)
				time.Sleep(time.Minute)
				if err := getJSON(t, f, "https://moves.corp/doc", new(document)); err != nil {
					t.Errorf("at %s: got error %v, want success", at, err)
				}
			}
		})
	})
	t.Run("of the loopback host", func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.Doc("http://localhost:8000/doc", "{}")
		w.At("localhost", "8.8.8.8")
		for _, server := range []string{"http://127.0.0.1:8001/mcp", "http://localhost:8000/mcp"} {
			endpoint, _ := url.Parse(server)
			err := getJSON(t, w.Fetcher(nil).For(endpoint), "http://localhost:8000/doc", new(document))
			if !errors.Is(err, oauthfetch.ErrURLRefused) {
				t.Errorf("for %s: got error %v, want ErrURLRefused for http to a public address", server, err)
			}
		}
	})
	t.Run("with several addresses", func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.Doc("https://mixed.example/doc", "{}")
		w.At("mixed.example", "169.254.169.254", "10.0.0.1", "127.0.0.1", "8.8.8.8")
		if err := getJSON(t, w.Fetcher(nil), "https://mixed.example/doc", new(document)); err != nil {
			t.Error(err)
		}
		if got := w.Addresses(); len(got) != 1 || got[0].String() != public {
			t.Errorf("connected to %v, want %s", got, public)
		}
	})
}

// refusedURLs returns URLs that every Fetcher refuses by their text.
func refusedURLs(t testing.TB) (urls []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/refused_urls.json")
	if err == nil {
		err = json.Unmarshal(data, &urls)
	}
	if err != nil {
		t.Fatal(err)
	}
	return urls
}

// checkURL returns an error if a URL breaks a rule of a Fetcher. It is written independently of the
// Fetcher.
func checkURL(text string) error {
	rest, ok := strings.CutPrefix(strings.ToLower(text), "https://")
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
	}
	switch {
	case !ok:
		return errors.New("not https")
	case strings.ContainsAny(text, "#\\ \t\r\n") ||
		strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }):
		return errors.New("invalid character")
	case strings.ContainsAny(authority, "@%") || authority == "":
		return errors.New("invalid authority")
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		a = a.Unmap()
		if a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			return errors.New("address is not public")
		}
	}
	return nil
}

// FuzzURL checks the URLs that a Fetcher accepts against checkURL.
func FuzzURL(f *testing.F) {
	for _, text := range refusedURLs(f) {
		f.Add(text)
	}
	f.Add("https://as.example/x")
	f.Add("https://8.8.8.8:8443")
	fetcher := oauthfetch.New(nil)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := fetcher.CheckURL(text); err != nil {
			return
		}
		if err := checkURL(text); err != nil {
			t.Fatalf("%q was accepted: %v", text, err)
		}
	})
}
