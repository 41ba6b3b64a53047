// Package oauthtest simulates a network for the tests of OAuth: names, addresses, and https servers
// with certificates.
package oauthtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// A Network is an in-memory network: names, addresses, and https servers whose certificates its
// Fetchers trust. All methods are safe for concurrent use.
type Network struct {
	t     testing.TB
	roots *x509.CertPool
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey

	Mu        sync.Mutex              // guards the fields below
	Names     map[string][]netip.Addr // of the hosts; others have DefaultAddress
	Answers   map[string][][]netip.Addr
	pages     map[string]http.HandlerFunc // by scheme, host and path
	fallback  func(path string) string    // the document of a URL without a page; nil for 404
	requests  []string                    // method and URL
	headers   []http.Header               // of these
	connected []netip.Addr
	certs     map[string]tls.Certificate
	conns     []net.Conn
	servers   sync.WaitGroup
}

// DefaultAddress is the public address of every host that a test does not place with At.
var DefaultAddress = netip.MustParseAddr("8.8.4.4")

// NewNetwork returns a Network that ends with the test.
func NewNetwork(t testing.TB) *Network {
	n := &Network{
		t: t, Names: map[string][]netip.Addr{}, Answers: map[string][][]netip.Addr{},
		pages: map[string]http.HandlerFunc{}, certs: map[string]tls.Certificate{}, roots: x509.NewCertPool(),
	}
	n.key, n.ca = NewCA(t)
	n.roots.AddCert(n.ca)
	t.Cleanup(func() {
		n.Mu.Lock()
		for _, c := range n.conns {
			_ = c.Close()
		}
		n.Mu.Unlock()
		n.servers.Wait()
	})
	return n
}

// NewCA returns a certificate authority and its key.
func NewCA(t testing.TB) (*ecdsa.PrivateKey, *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "oauthtest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0,
			time.UTC), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, ca
}

// certificate returns the certificate of a host. The caller holds mu.
func (n *Network) certificate(host string) tls.Certificate {
	if c, ok := n.certs[host]; ok {
		return c
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Unix(0, 0), NotAfter: n.ca.NotAfter, DNSNames: []string{host},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, n.ca, &n.key.PublicKey, n.key)
	if err != nil {
		n.t.Error(err)
	}
	c := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: n.key}
	n.certs[host] = c
	return c
}

// Fetcher returns a Fetcher on the network. opts may be nil; its TLSConfig and Logger are replaced.
func (n *Network) Fetcher(opts *oauthfetch.Options) *oauthfetch.Fetcher {
	var o oauthfetch.Options
	if opts != nil {
		o = *opts
	}
	o.TLSConfig = &tls.Config{RootCAs: n.roots}
	o.Logger = slog.New(slog.DiscardHandler)
	f := oauthfetch.New(&o)
	f.SetNetwork(n.lookup, n.connect)
	return f
}

func (n *Network) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if next := n.Answers[host]; len(next) > 0 {
		n.Answers[host] = next[1:]
		return next[0], nil
	}
	if all, ok := n.Names[host]; ok {
		return all, nil
	}
	if strings.EqualFold(host, "localhost") {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return []netip.Addr{DefaultAddress}, nil
}

// At sets the addresses of a host.
func (n *Network) At(host string, addresses ...string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.Names[host] = nil
	for _, a := range addresses {
		n.Names[host] = append(n.Names[host], netip.MustParseAddr(a))
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
		if err = check(ctx, net.JoinHostPort(a.String(), port)); err == nil {
			n.Mu.Lock()
			defer n.Mu.Unlock()
			n.connected = append(n.connected, a)
			return n.serve(host, port), nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// serve returns the client end of a connection to a server that ends with the connection. The
// caller holds mu. Ports that begin with 80 speak plain http.
func (n *Network) serve(host, port string) net.Conn {
	client, server := net.Pipe()
	n.conns = append(n.conns, client, server)
	scheme, conn := "http", server
	if !strings.HasPrefix(port, "80") {
		scheme, conn = "https", tls.Server(server, &tls.Config{Certificates: []tls.Certificate{n.certificate(host)}})
	}
	l := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- &closeConn{Conn: conn, closed: sync.OnceFunc(func() { close(l.done) })}
	hs := &http.Server{
		Handler:  http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { n.answer(scheme, rw, req) }),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	n.servers.Go(func() { _ = hs.Serve(l) })
	return client
}

// A oneConn is a listener that accepts one connection, and ends with it.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

type closeConn struct {
	net.Conn
	closed func()
}

func (c *closeConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

func (n *Network) answer(scheme string, rw http.ResponseWriter, req *http.Request) {
	n.Mu.Lock()
	place := scheme + "://" + req.Host + req.URL.EscapedPath()
	n.requests = append(n.requests, req.Method+" "+scheme+"://"+req.Host+req.URL.String())
	n.headers = append(n.headers, req.Header)
	page := n.pages[place]
	if page == nil && n.fallback != nil {
		page = JSONPage(n.fallback(req.URL.Path))
	}
	n.Mu.Unlock()
	if page == nil {
		http.NotFound(rw, req)
		return
	}
	page(rw, req)
}

// Page sets the handler of a URL, for every method.
func (n *Network) Page(address string, page http.HandlerFunc) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.pages[address] = page
}

// Handler returns the handler that Page has set for a URL.
func (n *Network) Handler(address string) http.HandlerFunc {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.pages[address]
}

// Clear removes all pages and certificates.
func (n *Network) Clear() {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	clear(n.pages)
	clear(n.certs)
}

// Doc sets the JSON document of a URL.
func (n *Network) Doc(address, text string) { n.Page(address, JSONPage(text)) }

// Default sets the JSON documents of the URLs that have no page.
func (n *Network) Default(text func(path string) string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.fallback = text
}

// JSONPage returns a handler that serves a JSON document.
func JSONPage(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(text))
	}
}

// StatusPage returns a handler that responds with a status.
func StatusPage(status int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) }
}

// RedirectPage returns a handler that redirects with status 302.
func RedirectPage(to string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusFound)
	}
}

// Requests returns the method and URL of each request since the last call, in order.
func (n *Network) Requests() []string {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	all := n.requests
	n.requests, n.headers = nil, nil
	return all
}

// LastHeader returns the header of the latest request.
func (n *Network) LastHeader() http.Header {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.headers[len(n.headers)-1]
}

// Addresses returns the addresses that were connected to since the last call, sorted.
func (n *Network) Addresses() []netip.Addr {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	all := n.connected
	n.connected = nil
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// RefusedURLs returns URLs that a Fetcher refuses by their text, whatever server names them.
func RefusedURLs() []string {
	return []string{
		"http://as.example/x", "ftp://as.example/x", "file:///etc/passwd", "javascript:alert(1)", "data:application/json,{}",
		"gopher://as.example/", "//as.example/x", "/x", "x", "https:", "https://", "https:///x", "https:as.example/x",
		"https://user@as.example/x", "https://user:pass@as.example/x", "https://@as.example/x", "https://as.example/x#f", "https://as.example/x#",
		"https://as.example /x", "https://as.example/\x00", "https://as.example/\n", "https://as.example\\@evil.example/x", " https://as.example/x",
		"https://as.example:0/x", "https://as.example:65536/x", "https://as.example:a/x", "https://[fe80::1%25eth0]/x", "https://%31%32%37.0.0.1/x",
		"https://as.exämple/x", "https://%80/x", "https://as.example;x/y", "https://a,b/x", "https://$host/x", "https://127.0.0.1/x", "https://127.0.0.1:8443/x", "https://[::1]/x", "https://[::ffff:127.0.0.1]/x",
		"https://10.0.0.1/x", "https://192.168.1.1/x", "https://100.64.0.1/x", "https://169.254.169.254/latest/meta-data/",
		"https://[fd00:ec2::254]/x", "https://[fc00::1]/x", "https://0.0.0.0/x", "https://[::]/x", "https://255.255.255.255/x",
		"https://[64:ff9b::a9fe:a9fe]/x", "http://localhost/x", "http://127.0.0.1:8080/x", "http://[::1]/x",
		"https://as.example/" + strings.Repeat("x", oauthfetch.MaxURL),
	}
}

// CheckURL returns an error if a URL breaks a rule of a Fetcher. It is written independently of the
// Fetcher.
func CheckURL(text string) error {
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
		return errors.New("a character")
	case strings.ContainsAny(authority, "@%") || authority == "":
		return errors.New("the authority")
	}
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		a = a.Unmap()
		if a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			return errors.New("the address")
		}
	}
	return nil
}
