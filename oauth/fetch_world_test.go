package oauth_test

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// A world is an Internet of its own, in memory: names, addresses, and servers with certificates that its Fetchers trust.
type world struct {
	t     testing.TB
	roots *x509.CertPool
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey

	mu        sync.Mutex              // guards the fields below
	names     map[string][]netip.Addr // of a host that is not in it: one public address
	answers   map[string][][]netip.Addr
	pages     map[string]http.HandlerFunc // by scheme, host and path
	anywhere  func(path string) string    // what is where there is no page, nil for nothing
	asked     []string                    // requests, as method and URL
	headers   []http.Header               // of these
	connected []netip.Addr
	certs     map[string]tls.Certificate
	conns     []net.Conn
	servers   sync.WaitGroup
}

// somewhere is a public address, at which every name is that a test says nothing of.
var somewhere = netip.MustParseAddr("8.8.4.4")

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, names: map[string][]netip.Addr{}, answers: map[string][][]netip.Addr{},
		pages: map[string]http.HandlerFunc{}, certs: map[string]tls.Certificate{}, roots: x509.NewCertPool(),
	}
	w.key, w.ca = newAuthority(t)
	w.roots.AddCert(w.ca)
	t.Cleanup(func() {
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.servers.Wait()
	})
	return w
}

func newAuthority(t testing.TB) (*ecdsa.PrivateKey, *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), KeyUsage: x509.KeyUsageCertSign,
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

// certificate is that of a host. The caller holds mu.
func (w *world) certificate(host string) tls.Certificate {
	if c, ok := w.certs[host]; ok {
		return c
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Unix(0, 0), NotAfter: w.ca.NotAfter, DNSNames: []string{host},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, &w.key.PublicKey, w.key)
	if err != nil {
		w.t.Error(err)
	}
	c := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
	w.certs[host] = c
	return c
}

// fetcher returns a Fetcher in the world.
func (w *world) fetcher(opts *oauth.FetcherOptions) *oauth.Fetcher {
	var o oauth.FetcherOptions
	if opts != nil {
		o = *opts
	}
	o.TLSConfig = &tls.Config{RootCAs: w.roots}
	o.Logger = slog.New(slog.DiscardHandler)
	f := oauth.NewFetcher(&o)
	oauth.SetNetwork(f, w.lookup, w.connect)
	return f
}

func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if next := w.answers[host]; len(next) > 0 {
		w.answers[host] = next[1:]
		return next[0], nil
	}
	if all, ok := w.names[host]; ok {
		return all, nil
	}
	if strings.EqualFold(host, "localhost") {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return []netip.Addr{somewhere}, nil
}

// at says which addresses a name has.
func (w *world) at(host string, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[host] = nil
	for _, a := range addresses {
		w.names[host] = append(w.names[host], netip.MustParseAddr(a))
	}
}

// connect does what net.Dialer does, and connects to the servers of the world.
func (w *world) connect(ctx context.Context, _, address string, check oauth.CheckFunc) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	all, _ := w.lookup(ctx, host)
	err = errors.New("no address")
	for _, a := range all {
		if err = check(ctx, net.JoinHostPort(a.String(), port)); err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.connected = append(w.connected, a)
			return w.serve(host, port), nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

// serve returns the client's end of a connection to a server that ends with it. The caller holds mu. Ports that begin with
// 80 are those of plain http.
func (w *world) serve(host, port string) net.Conn {
	client, server := net.Pipe()
	w.conns = append(w.conns, client, server)
	scheme, conn := "http", server
	if !strings.HasPrefix(port, "80") {
		scheme, conn = "https", tls.Server(server, &tls.Config{Certificates: []tls.Certificate{w.certificate(host)}})
	}
	l := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- &notedConn{Conn: conn, closed: sync.OnceFunc(func() { close(l.done) })}
	hs := &http.Server{
		Handler:  http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { w.answer(scheme, rw, req) }),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	w.servers.Go(func() { _ = hs.Serve(l) })
	return client
}

// oneConn is a listener that gives one connection, and ends with it.
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

type notedConn struct {
	net.Conn
	closed func()
}

func (c *notedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

func (w *world) answer(scheme string, rw http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	place := scheme + "://" + req.Host + req.URL.EscapedPath()
	w.asked = append(w.asked, req.Method+" "+scheme+"://"+req.Host+req.URL.String())
	w.headers = append(w.headers, req.Header)
	page := w.pages[place]
	if page == nil && w.anywhere != nil {
		page = jsonPage(w.anywhere(req.URL.Path))
	}
	w.mu.Unlock()
	if page == nil {
		http.NotFound(rw, req)
		return
	}
	page(rw, req)
}

// page puts a page at a URL, for every method.
func (w *world) page(url string, page http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[url] = page
}

// doc puts a JSON document at a URL.
func (w *world) doc(url, text string) { w.page(url, jsonPage(text)) }

// every puts a JSON document wherever there is no page.
func (w *world) every(text func(path string) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.anywhere = text
}

func jsonPage(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(text))
	}
}

func statusPage(status int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) }
}

func redirectPage(to string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", to)
		rw.WriteHeader(http.StatusFound)
	}
}

// requests returns what was asked for, in order, and forgets it.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.asked
	w.asked, w.headers = nil, nil
	return all
}

// lastHeader returns the header of the latest request.
func (w *world) lastHeader() http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.headers[len(w.headers)-1]
}

// addresses returns those that were connected to, and forgets them.
func (w *world) addresses() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.connected
	w.connected = nil
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
