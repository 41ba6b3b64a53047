package oauth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// What the tests of fetching, discovery and registration reach within.
type (
	Discovery      = discovery
	DiscoveryQuery = discoveryQuery
	CheckFunc      = checkFunc
)

const (
	MaxDocument          = maxDocument
	MaxDocumentDepth     = maxDocumentDepth
	MaxDocumentRedirects = maxDocumentRedirects
	MaxURL               = maxURL
	MaxServers           = maxServers
	MaxCredential        = maxCredential
)

// SetNetwork replaces the network that a Fetcher is on, for what is made of it later as well.
func SetNetwork(
	f *Fetcher, lookup func(ctx context.Context, host string) ([]netip.Addr, error),
	connect func(ctx context.Context, network, address string, check CheckFunc) (net.Conn, error),
) {
	f.policy.lookup, f.policy.connect = lookup, connect
}

func Discover(ctx context.Context, f *Fetcher, q *DiscoveryQuery) (*Discovery, error) {
	return f.discoverBy(ctx, q)
}

func CheckCodeFlow(d *Discovery) error { return d.checkCodeFlow() }

func Register(ctx context.Context, f *Fetcher, server *ServerMetadata, meta *ClientMetadata) (*Registration, error) {
	var redirectURI string
	if len(meta.RedirectURIs) > 0 {
		redirectURI = meta.RedirectURIs[0]
	}
	return f.register(ctx, server, meta, redirectURI)
}

func GetJSON(ctx context.Context, f *Fetcher, address string, into any) error {
	return f.getJSON(ctx, address, nil, into)
}

func PostForm(ctx context.Context, f *Fetcher, address string, form url.Values) (int, http.Header, []byte, error) {
	return f.postForm(ctx, address, form, nil)
}

// Within is a Fetcher for a server that was seen in a zone.
func Within(f *Fetcher, endpoint *url.URL, seen string) *Fetcher {
	var reach zone
	_ = reach.UnmarshalText([]byte(seen))
	return f.within(endpoint, reach)
}

// ZoneOf names the zone of an address: public, private, loopback or special.
func ZoneOf(a netip.Addr) string { return zoneOf(a).String() }

// CheckURL is what a Fetcher says of a URL before it knows where its host is.
func CheckURL(f *Fetcher, text string) error {
	_, err := f.policy.checkText(text)
	return err
}

func CheckResource(f *Fetcher, resource string, endpoint *url.URL) error {
	return f.policy.checkResource(resource, endpoint)
}

func Freshness(header http.Header, now time.Time) time.Duration { return freshness(header, now) }
