package https_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/https"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	key  = "0123456789abcdef0123456789abcdef"
	hang = time.Minute // far more than a step takes
)

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: t.Name()}}
	a.key = newKey(t)
	a.cert = must(x509.ParseCertificate(a.sign(template, &a.key.PublicKey, template)))(t)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (a *authority) sign(template *x509.Certificate, public *ecdsa.PublicKey, parent *x509.Certificate) []byte {
	a.t.Helper()
	template.SerialNumber = must(rand.Int(rand.Reader, big.NewInt(1<<62)))(a.t)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	return must(x509.CreateCertificate(rand.Reader, template, parent, public, a.key))(a.t)
}

// issue returns a certificate for clients and for a server at a loopback address.
func (a *authority) issue(template *x509.Certificate) *tls.Certificate {
	a.t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	private := newKey(a.t)
	return &tls.Certificate{Certificate: [][]byte{a.sign(template, &private.PublicKey, a.cert)}, PrivateKey: private}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A site is a gateway with TLS. Its server has the tool whoami, which returns the subject of the caller, and the
// tool wait.
type site struct {
	t        *testing.T
	ca       *authority
	dir, url string
	waiting  chan struct{} // receives a value when the tool wait has begun
	log      lines
}

// Lines are the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (s *site) writePair(c *tls.Certificate) {
	s.t.Helper()
	private := must(x509.MarshalPKCS8PrivateKey(c.PrivateKey))(s.t)
	write(s.t, filepath.Join(s.dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	write(s.t, filepath.Join(s.dir, "tls.crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}

func newSite(t *testing.T, clients *gatewayconfig.ClientCertificates) *site {
	t.Helper()
	s := &site{t: t, ca: newAuthority(t), dir: t.TempDir(), waiting: make(chan struct{}, 10), log: make(lines, 1000)}
	s.writePair(s.ca.issue(&x509.Certificate{}))
	settings := &gatewayconfig.TLS{Certificate: filepath.Join(s.dir, "tls.crt"), Key: filepath.Join(s.dir, "tls.key"),
		Clients: clients}
	if clients != nil {
		clients.Authorities = filepath.Join(s.dir, "clients.pem")
		write(t, clients.Authorities, s.ca.pem())
	}
	quiet := slog.New(slog.DiscardHandler)
	x := must(https.Open(&https.Options{Settings: settings, State: new(state.Memory), Logger: quiet}))(t)
	end := must(x.Follow(t.Context()))(t)
	t.Cleanup(end)
	f := must(config.Parse([]byte(`{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}},
		"patchbay": {"profiles": {"work": {"servers": ["two"]}}}}`)))(t)
	h := must(host.Open(t.Context(), f, &host.Options{Logger: quiet,
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s.server()), nil }}))(t)
	g := gateway.New(h, &gateway.Options{Keys: []string{key}, Certificates: x.ClientCertificates(),
		Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	s.url = "https://" + l.Addr().String() + "/mcp"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, x.Listener(l)) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, h.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) server() *mcp.Server {
	srv := mcp.NewServer("s", "1", nil)
	mcp.AddTool(srv, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		s.waiting <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	return srv
}

// client returns a client of HTTP with a certificate, which may be nil.
func (s *site) client(c *tls.Certificate) *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ca.pool()}, ForceAttemptHTTP2: true}
	if c != nil {
		// not Certificates: a client would not send a certificate that the server does not ask for
		t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
	}
	s.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: hang}
}

// tools returns the number of tools that a client sees in a revision.
func (s *site) tools(revision string, c *http.Client, authorization string) (int, error) {
	header := http.Header{}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	m, err := mcp.Connect(s.t.Context(), mcphttp.NewTransport(s.url, &mcphttp.TransportOptions{Client: c, Header: header}),
		&mcp.ClientOptions{Revision: revision})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	n := 0
	for _, err := range m.Tools(s.t.Context()) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func names(common ...string) *x509.Certificate {
	c := &x509.Certificate{}
	for _, name := range common {
		c.Subject.ExtraNames = append(c.Subject.ExtraNames,
			pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name})
	}
	return c
}

func TestCertificatesNameCallers(t *testing.T) {
	spiffe := must(url.Parse("spiffe://example.com/build"))(t)
	for name, test := range map[string]struct {
		clients     gatewayconfig.ClientCertificates
		certificate *x509.Certificate // nil for none
		header      string
		want        int // tools; 0 for a refusal
	}{
		"common name":             {certificate: names("ann"), want: 2},
		"no certificate":          {},
		"key":                     {header: "Bearer " + key, want: 2},
		"key and a certificate":   {certificate: names("a", "b"), header: "Bearer " + key, want: 2},
		"a wrong key beside it":   {certificate: names("ann"), header: "Bearer x"},
		"a token without a kind":  {certificate: names("ann"), header: "ann"},
		"two names":               {certificate: names("ann", "root")},
		"no name":                 {certificate: &x509.Certificate{Subject: pkix.Name{Organization: []string{"Example"}}}},
		"a control character":     {certificate: names("ann\x00")},
		"a profile":               {clients: gatewayconfig.ClientCertificates{Profiles: map[string]string{"ann": "work"}}, certificate: names("ann"), want: 1},
		"no profile":              {clients: gatewayconfig.ClientCertificates{Profiles: map[string]string{"ann": "work"}}, certificate: names("eve")},
		"e-mail":                  {clients: gatewayconfig.ClientCertificates{Name: "email"}, certificate: &x509.Certificate{EmailAddresses: []string{"ann@example.com"}}, want: 2},
		"no e-mail":               {clients: gatewayconfig.ClientCertificates{Name: "email"}, certificate: names("ann@example.com")},
		"DNS":                     {clients: gatewayconfig.ClientCertificates{Name: "dns"}, certificate: &x509.Certificate{DNSNames: []string{"build.example.com"}}, want: 2},
		"two DNS names":           {clients: gatewayconfig.ClientCertificates{Name: "dns"}, certificate: &x509.Certificate{DNSNames: []string{"a.example.com", "b.example.com"}}},
		"URI":                     {clients: gatewayconfig.ClientCertificates{Name: "uri"}, certificate: &x509.Certificate{URIs: []*url.URL{spiffe}}, want: 2},
		"expired":                 {certificate: &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, NotAfter: time.Now().Add(-time.Minute)}},
		"required":                {clients: gatewayconfig.ClientCertificates{Required: true}, certificate: names("ann"), want: 2},
		"required besides a key":  {clients: gatewayconfig.ClientCertificates{Required: true}, header: "Bearer " + key},
		"required, key and names": {clients: gatewayconfig.ClientCertificates{Required: true}, certificate: names("a", "b"), header: "Bearer " + key, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, &test.clients)
			var certificate *tls.Certificate
			if test.certificate != nil {
				certificate = s.ca.issue(test.certificate)
			}
			for _, revision := range []string{"2024-11-05", "2025-11-25", mcptest.Modern} {
				n, err := s.tools(revision, s.client(certificate), test.header)
				if n != test.want || (err != nil) != (test.want == 0) {
					t.Errorf("%s: got %d tools and error %v, want %d", revision, n, err, test.want)
				}
			}
		})
	}
}

// Only the authorities of the file sign certificates of callers, whatever a client claims.
func TestCertificateOfAnotherAuthorityIsRefused(t *testing.T) {
	s, other := newSite(t, &gatewayconfig.ClientCertificates{}), newAuthority(t)
	for name, c := range map[string]*tls.Certificate{
		"another authority": other.issue(names("ann")),
		"the name of the authority": func() *tls.Certificate {
			c := other.issue(names("ann"))
			c.Certificate = append(c.Certificate, s.ca.cert.Raw)
			return c
		}(),
	} {
		if n, err := s.tools(mcptest.Modern, s.client(c), ""); err == nil {
			t.Errorf("%s: got %d tools, want a refusal", name, n)
		}
	}
	plain := newSite(t, nil)
	if n, err := plain.tools(mcptest.Modern, plain.client(plain.ca.issue(names("ann"))), ""); err == nil {
		t.Errorf("without the setting clients: got %d tools, want a refusal", n)
	}
}

// When an authority is removed from the file, its callers lose calls in progress and further requests on the same
// connection.
func TestRemovedAuthorityEndsRequests(t *testing.T) {
	s := newSite(t, &gatewayconfig.ClientCertificates{})
	client := s.client(s.ca.issue(names("ann")))
	m := must(mcp.Connect(t.Context(), mcphttp.NewTransport(s.url, &mcphttp.TransportOptions{Client: client}), nil))(t)
	defer m.Close()
	ended := make(chan bool, 1)
	go func() {
		r, err := m.CallTool(t.Context(), "one__wait", nil)
		ended <- err != nil || r.IsError
	}()
	<-s.waiting
	other := newAuthority(t)
	write(t, filepath.Join(s.dir, "clients.pem"), other.pem())
	select {
	case failed := <-ended:
		if !failed {
			t.Error("got a result, want an error")
		}
	case <-time.After(hang):
		t.Fatal("the call did not end")
	}
	if _, err := m.CallTool(t.Context(), "one__wait", nil); err == nil {
		t.Error("got a result on an old connection, want a refusal")
	}
	if _, err := s.tools(mcptest.Modern, s.client(other.issue(names("bob"))), ""); err != nil {
		t.Errorf("got error %v, want the tools of a caller of the new authority", err)
	}
}

// The gateway serves a renewed certificate, and keeps the last valid certificate when the files are invalid.
func TestChangedFilesAreRead(t *testing.T) {
	s := newSite(t, nil)
	served := func() []byte {
		c := must(tls.Dial("tcp", s.url[len("https://"):len(s.url)-len("/mcp")], &tls.Config{RootCAs: s.ca.pool()}))(t)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Raw
	}
	first := served()
	write(t, filepath.Join(s.dir, "tls.crt"), []byte("half a file"))
	next := s.ca.issue(&x509.Certificate{})
	if !bytes.Equal(served(), first) {
		t.Error("another certificate is served while the file is invalid")
	}
	s.writePair(next)
	for deadline := time.Now().Add(hang); !bytes.Equal(served(), next.Certificate[0]); {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not served")
		}
	}
	if n, err := s.tools(mcptest.Modern, s.client(nil), "Bearer "+key); n != 2 || err != nil {
		t.Errorf("got %d tools and error %v, want 2", n, err)
	}
}

// A client that speaks no TLS must not fill the disk with lines of the log.
func TestFailedHandshakesAreLoggedWithinALimit(t *testing.T) {
	s := newSite(t, nil)
	addr := strings.TrimSuffix(strings.TrimPrefix(s.url, "https://"), "/mcp")
	for range 60 {
		c := must(net.Dial("tcp", addr))(t)
		_, err := c.Write([]byte("GET /mcp HTTP/1.1\r\n\r\n"))
		_, readErr := io.ReadAll(c) // until the gateway has closed the connection
		if err := errors.Join(err, readErr, c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case line := <-s.log:
		if !strings.Contains(line, "TLS handshake error") {
			t.Errorf("got the line %s", line)
		}
	case <-time.After(hang):
		t.Fatal("no line was logged")
	}
	if n := len(s.log); n > 10 {
		t.Errorf("got %d further lines, want at most 10", n)
	}
}

func TestInvalidFilesAreErrors(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	s := &site{t: t, ca: ca, dir: dir}
	s.writePair(ca.issue(&x509.Certificate{}))
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("ca.pem"), ca.pem())
	write(t, in("empty.pem"), nil)
	write(t, in("long.pem"), make([]byte, 1<<20+1))
	write(t, in("cut.pem"), append(ca.pem(), ca.pem()[:200]...))
	for name, settings := range map[string]*gatewayconfig.TLS{
		"no certificate":         {Certificate: in("none.crt"), Key: in("tls.key")},
		"no key":                 {Certificate: in("tls.crt"), Key: in("none.key")},
		"no match":               {Certificate: in("ca.pem"), Key: in("tls.key")},
		"a key as a certificate": {Certificate: in("tls.key"), Key: in("tls.key")},
		"a long file":            {Certificate: in("long.pem"), Key: in("tls.key")},
		"no authority": {Certificate: in("tls.crt"), Key: in("tls.key"),
			Clients: &gatewayconfig.ClientCertificates{Authorities: in("empty.pem")}},
		"an authority that is not written completely": {Certificate: in("tls.crt"), Key: in("tls.key"),
			Clients: &gatewayconfig.ClientCertificates{Authorities: in("cut.pem")}},
		"a key as an authority": {Certificate: in("tls.crt"), Key: in("tls.key"),
			Clients: &gatewayconfig.ClientCertificates{Authorities: in("tls.key")}},
		"no file of authorities": {Certificate: in("tls.crt"), Key: in("tls.key"),
			Clients: &gatewayconfig.ClientCertificates{Authorities: in("none.pem")}},
	} {
		if _, err := https.Open(&https.Options{Settings: settings, Logger: slog.Default()}); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
