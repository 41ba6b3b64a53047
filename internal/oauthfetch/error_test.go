package oauthfetch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// newTLSServer starts a local TLS server with a certificate. It returns its port and a Fetcher that
// trusts roots.
func newTLSServer(t *testing.T, template, issuer *x509.Certificate, key *ecdsa.PrivateKey,
	roots *x509.CertPool) (string, *oauthfetch.Fetcher) {
	t.Helper()
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	if issuer == nil {
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // the client ends the handshake before
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port, oauthfetch.New(&oauthfetch.Options{AllowedHosts: []string{"localhost"},
		TLSConfig: &tls.Config{RootCAs: roots}})
}

// newCA returns a certificate authority and its key.
func newCA(t testing.TB) (*ecdsa.PrivateKey, *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "oauthtest"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Unix(0, 0), NotAfter: time.Date(2200, 1, 1, 0, 0, 0, 0,
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

// The text in a refused certificate is not trusted and appears in no error.
func TestFetchErrorsContainNoCertificateText(t *testing.T) {
	const evil = "a\x1b]0;owned\x07\nERROR all is well"
	key, ca := newCA(t)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	many := slices.Repeat([]string{"x.example"}, 2)
	for i := range many {
		many[i] = strings.Repeat(string(rune('a'+i)), 60) + ".example"
	}
	for name, template := range map[string]*x509.Certificate{
		"names":         {DNSNames: []string{evil}},
		"a common name": {Subject: pkix.Name{CommonName: evil}},
		"other names":   {DNSNames: many},
		"a subject": {Subject: pkix.Name{CommonName: evil}, DNSNames: []string{"localhost"},
			NotBefore: time.Now().Add(time.Minute)},
	} {
		for _, issuer := range []*x509.Certificate{nil, ca} {
			port, f := newTLSServer(t, template, issuer, key, roots)
			err := getJSON(t, f, "https://localhost:"+port, new(document))
			var refused *tls.CertificateVerificationError
			if !errors.As(err, &refused) {
				t.Fatalf("%s: got error %v, want a CertificateVerificationError", name, err)
			}
			text := err.Error()
			if strings.ContainsFunc(text, unicode.IsControl) || strings.Contains(text, "aaaa") || len(text) > 500 {
				t.Errorf("%s: got error %q, want a short text without that of the certificate", name, text)
			}
			var foreign x509.HostnameError
			if errors.As(err, &foreign) && !strings.Contains(text, "the certificate is not valid for the host") {
				t.Errorf("%s: got error %q, want a short text without that of the certificate", name, text)
			}
		}
	}
}
