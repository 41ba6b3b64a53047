package oauthfetch_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// startRefusingProxy starts a proxy that refuses all requests and appends them to requests.
func startRefusingProxy(t *testing.T, requests *[]string) *url.URL {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		*requests = append(*requests, req.Method+" "+req.Host)
		rw.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Through a proxy, a name that resolves here is refused before CONNECT by the rules for its addresses.
// The proxy decides about names that only it can resolve.
//
// Requirement: SEC-08
func TestAddressesAreCheckedBeforeCONNECT(t *testing.T) {
	var connects []string
	at := startRefusingProxy(t, &connects)
	names := map[string][]string{
		"public.example": {"8.8.8.8", "2606:4700::1111"}, "private.example": {"10.0.0.7"},
		"cloud.example": {"169.254.169.254"}, "loopback.example": {"::1"}, "both.example": {"8.8.8.8", "10.0.0.7"},
		"mcp.corp": {"10.0.0.1"}, "mcp.example": {"8.8.4.4"},
	}
	lookup := func(_ context.Context, host string) (all []netip.Addr, err error) {
		for _, a := range names[host] {
			all = append(all, netip.MustParseAddr(a))
		}
		if all == nil {
			err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return all, err
	}
	connect := func(ctx context.Context, network, address string, check oauthfetch.CheckFunc) (net.Conn, error) {
		if err := check(ctx, address); err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	for _, tt := range []struct {
		name, host, source string
		allowed            []string
		any                bool
		connects, refused  bool
	}{
		{name: "public", host: "public.example", connects: true},
		{name: "unknown here", host: "unknown.example", connects: true},
		{name: "unknown here, of a known server", host: "unknown.example", source: "https://mcp.example/mcp", connects: true},
		{name: "private", host: "private.example", refused: true},
		{name: "one private address of two", host: "both.example", refused: true},
		{name: "metadata of a cloud", host: "cloud.example", refused: true},
		{name: "loopback", host: "loopback.example", refused: true},
		{name: "private, of a public server", host: "private.example", source: "https://mcp.example/mcp", refused: true},
		{name: "private, of a server that is unknown here", host: "private.example", source: "https://unknown.example/mcp"},
		{name: "private, of a private server", host: "private.example", source: "https://mcp.corp/mcp", connects: true},
		{name: "loopback, of a private server", host: "loopback.example", source: "https://mcp.corp/mcp", refused: true},
		{name: "private, allowed", host: "private.example", allowed: []string{"private.example"}, connects: true},
		{name: "cloud with any address", host: "cloud.example", any: true, connects: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			connects = nil
			f := oauthfetch.New(&oauthfetch.Options{
				Proxy:        func(*http.Request) (*url.URL, error) { return at, nil },
				AllowedHosts: tt.allowed, InsecureAnyAddress: tt.any,
			})
			f.SetNetwork(lookup, connect)
			if tt.source != "" {
				source, _ := url.Parse(tt.source)
				f = f.For(source)
			}
			err := getJSON(t, f, "https://"+tt.host+"/doc", new(document))
			want := []string{"CONNECT " + tt.host + ":443"}
			if !tt.connects {
				want = nil
			}
			if !slices.Equal(connects, want) || err == nil || errors.Is(err, oauthfetch.ErrURLRefused) != tt.refused {
				t.Errorf("the proxy got %q, error %v; want %q, refused %t", connects, err, want, tt.refused)
			}
		})
	}
}
