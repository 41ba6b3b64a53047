// Package oauthtest simulates a network for the tests of OAuth.
package oauthtest

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// A Network is an in-memory network: names, addresses, and servers that are reached through its
// Fetchers. Ports that begin with 80 speak http, others https. All methods are safe for concurrent
// use.
type Network struct {
	Default http.HandlerFunc // serves the URLs without a page; nil for 404

	plain, secure listener
	roots         *x509.CertPool

	mu        sync.Mutex                // guards the fields below
	names     map[string][]netip.Addr   // of the hosts; others have DefaultAddress
	next      map[string][][]netip.Addr // results of the next lookups
	pages     map[string]http.HandlerFunc
	requests  []string
	header    http.Header
	connected []netip.Addr
}

// DefaultAddress is the public address of every host without another address.
var DefaultAddress = netip.MustParseAddr("8.8.4.4")

// NewNetwork returns a Network that ends with the test.
func NewNetwork(t testing.TB) *Network {
	n := &Network{
		names: map[string][]netip.Addr{"localhost": {netip.MustParseAddr("127.0.0.1")}},
		next:  map[string][][]netip.Addr{}, pages: map[string]http.HandlerFunc{}, roots: x509.NewCertPool(),
	}
	newServer := func(l *listener) *httptest.Server {
		ctx, cancel := context.WithCancel(context.Background())
		*l = listener{make(chan net.Conn), ctx, cancel}
		config := &http.Server{Handler: http.HandlerFunc(n.serve), ErrorLog: log.New(io.Discard, "", 0)}
		s := &httptest.Server{Listener: l, Config: config}
		t.Cleanup(func() {
			l.stop()
			s.Close()
		})
		return s
	}
	newServer(&n.plain).Start()
	secure := newServer(&n.secure)
	secure.StartTLS()
	n.roots.AddCert(secure.Certificate())
	return n
}

type listener struct {
	conns chan net.Conn
	ctx   context.Context // ends when the listener is closed, and its connections with it
	stop  func()
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *listener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		context.AfterFunc(l.ctx, func() { _ = server.Close() })
		return client, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.stop()
	return nil
}

// Fetcher returns a Fetcher on the network. opts may be nil; its TLSConfig and Logger are replaced.
func (n *Network) Fetcher(opts *oauthfetch.Options) *oauthfetch.Fetcher {
	o := *cmp.Or(opts, new(oauthfetch.Options))
	o.TLSConfig = &tls.Config{RootCAs: n.roots, ServerName: "example.com"} // the name in the certificate
	o.Logger = slog.New(slog.DiscardHandler)
	f := oauthfetch.New(&o)
	f.SetNetwork(n.lookup, n.connect)
	return f
}

func (n *Network) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host = strings.ToLower(host)
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if next := n.next[host]; len(next) > 0 {
		n.next[host] = next[1:]
		return next[0], nil
	}
	if all, ok := n.names[host]; ok {
		return all, nil
	}
	return []netip.Addr{DefaultAddress}, nil
}

// At sets the addresses of a host.
func (n *Network) At(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[host], n.next[host] = nil, nil
	for _, a := range addresses {
		n.names[host] = append(n.names[host], netip.MustParseAddr(a))
	}
}

// Next sets the address that each of the next lookups of a host returns, before those of At.
func (n *Network) Next(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		n.next[host] = append(n.next[host], []netip.Addr{netip.MustParseAddr(a)})
	}
}

// connect checks each address as net.Dialer does, and connects to a server of the network.
func (n *Network) connect(ctx context.Context, _, address string, check oauthfetch.CheckFunc) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	all, _ := n.lookup(ctx, host)
	err = errors.New("no address")
	for _, a := range all {
		if err = check(ctx, net.JoinHostPort(a.String(), port)); err != nil {
			continue
		}
		n.mu.Lock()
		n.connected = append(n.connected, a)
		n.mu.Unlock()
		if strings.HasPrefix(port, "80") {
			return n.plain.dial()
		}
		return n.secure.dial()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

func (n *Network) serve(w http.ResponseWriter, r *http.Request) {
	origin := "https://" + r.Host
	if r.TLS == nil {
		origin = "http://" + r.Host
	}
	n.mu.Lock()
	n.requests = append(n.requests, r.Method+" "+origin+r.URL.String())
	n.header = r.Header
	page := n.pages[origin+r.URL.EscapedPath()]
	n.mu.Unlock()
	switch {
	case page != nil:
		page(w, r)
	case n.Default != nil:
		n.Default(w, r)
	default:
		http.NotFound(w, r)
	}
}

// Page sets the handler of a URL, for every method.
func (n *Network) Page(address string, page http.HandlerFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pages[address] = page
}

// Handler returns the handler that Page set for a URL.
func (n *Network) Handler(address string) http.HandlerFunc {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pages[address]
}

// Doc sets the JSON document of a URL.
func (n *Network) Doc(address, text string) { n.Page(address, JSONPage(text)) }

// JSONPage returns a handler that serves a JSON document.
func JSONPage(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

// RedirectPage returns a handler that redirects with status 302.
func RedirectPage(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}
}

// Requests returns the method and URL of each request since the last call, in order.
func (n *Network) Requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.requests
	n.requests = nil
	return all
}

// LastHeader returns the header of the latest request.
func (n *Network) LastHeader() http.Header {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.header
}

// Addresses returns the addresses that were connected to since the last call, sorted.
func (n *Network) Addresses() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.connected
	n.connected = nil
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
