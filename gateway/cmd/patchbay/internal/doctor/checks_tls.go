package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// expiresSoon is the rest of the life of a certificate that is worth a warning: automatic renewal
	// replaces certificates weeks before their end.
	expiresSoon = 7 * 24 * time.Hour
)

// errHandshakeOnly ends a connection after its handshake, before a request is sent.
var errHandshakeOnly = errors.New("the handshake is complete")

// verifyTLS completes a handshake, through the proxy if there is one, and verifies the certificate
// itself, so that it can show a certificate that is not valid. It sends no request.
func (w *web) verifyTLS(ctx context.Context, c *Check) {
	if w.url.Scheme != "https" {
		c.skip("the URL is http")
		return
	}
	base := w.Dialer.Net.NewBase()
	var state *tls.ConnectionState
	if base.TLSClientConfig == nil {
		base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	roots := base.TLSClientConfig.RootCAs
	base.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // verified below; nothing is sent
	base.TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
		state = &s
		return errHandshakeOnly
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, w.url.Scheme+"://"+w.url.Host+"/", http.NoBody)
	if err == nil {
		_, err = base.RoundTrip(req) //nolint:bodyclose // there is no response
	}
	if state == nil {
		c.see("no TLS handshake: %v", err)
		c.end(Fail, "check that port %s speaks TLS 1.2 or 1.3; an http server needs an http URL", w.url.Port())
		return
	}
	w.showCertificate(c, state)
	w.verify(c, state, roots)
}

func (w *web) showCertificate(c *Check, state *tls.ConnectionState) {
	leaf := state.PeerCertificates[0]
	names := leaf.DNSNames
	for _, a := range leaf.IPAddresses {
		names = append(names, a.String())
	}
	shown := strings.Join(names[:min(len(names), maxShown)], ", ")
	c.see("%s, certificate valid until %s, chain of %d", tls.VersionName(state.Version),
		leaf.NotAfter.UTC().Format(time.DateOnly), len(state.PeerCertificates))
	c.see("names %s; issuer %s", shown, leaf.Issuer)
}

func (w *web) verify(c *Check, state *tls.ConnectionState, roots *x509.CertPool) {
	leaf, others := state.PeerCertificates[0], x509.NewCertPool()
	for _, intermediate := range state.PeerCertificates[1:] {
		others.AddCert(intermediate)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: w.url.Hostname(), Roots: roots, Intermediates: others})
	var invalid x509.CertificateInvalidError
	now := time.Now()
	switch {
	case err == nil && leaf.NotAfter.Sub(now) < expiresSoon:
		c.end(Warn, "renew the certificate: it expires in %s", leaf.NotAfter.Sub(now).Round(time.Hour))
	case err == nil:
	case now.After(leaf.NotAfter):
		c.see("the certificate expired %s ago", now.Sub(leaf.NotAfter).Round(time.Minute))
		c.end(Fail, "renew the certificate of the server, or correct the clock of this machine (%s)",
			now.UTC().Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		c.see("the certificate is valid from %s", leaf.NotBefore.UTC().Format(time.DateTime))
		c.end(Fail, "correct the clock of this machine (%s)", now.UTC().Format(time.DateTime))
	case errors.As(err, new(x509.HostnameError)):
		c.see("the certificate is not for %s", w.url.Hostname())
		c.end(Fail, "use a URL with a name of the certificate, or install a certificate for %s", w.url.Hostname())
	case errors.As(err, new(x509.UnknownAuthorityError)):
		c.see("no trusted authority has signed the certificate or its chain")
		c.end(Fail, "pass the certificate of a private authority with --cacert FILE, or serve the whole chain")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c.see("a certificate of the chain has expired")
		c.end(Fail, "install a current chain on the server")
	default:
		c.see("%v", err)
		c.end(Fail, "install another certificate on the server")
	}
}
