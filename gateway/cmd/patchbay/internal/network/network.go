// Package network makes the HTTP requests of a command.
package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A Client makes the HTTP requests of a command.
type Client struct {
	IO    *term.Streams
	Flags *flags.Flags

	tls *tls.Config // contains the certificates of --cacert; nil for the default
}

// LoadCACert reads the certificates of --cacert, which HTTPS servers may have in addition to those
// of the system. It must be called before requests are sent.
func (n *Client) LoadCACert(ctx context.Context) error {
	file := n.Flags.CaCert
	if file == "" || n.tls != nil {
		return nil
	}
	text, err := term.ReadFile(ctx, file)
	if err != nil {
		return fmt.Errorf("--cacert: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return fmt.Errorf("--cacert: read the certificates of the system: %w", err)
	}
	if err := addCertificates(pool, text); err != nil {
		return fmt.Errorf("--cacert: %s: %w", file, err)
	}
	n.tls = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return nil
}

// addCertificates adds the certificates of a PEM file to a pool.
func addCertificates(pool *x509.CertPool, text []byte) error {
	added, other := 0, ""
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			other = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("invalid certificate %d: %w", added+1, err)
		}
		pool.AddCert(c)
		added++
	}
	switch {
	case added > 0:
		return nil
	case other != "":
		return fmt.Errorf("found no certificate, but a PEM block %.60q: want CERTIFICATE", other)
	}
	return errors.New("found no certificate: want PEM, with lines -----BEGIN CERTIFICATE-----; " +
		"convert DER with openssl x509 -inform der -in FILE")
}

// NewBase returns a transport for HTTP that trusts the certificates of --cacert.
func (n *Client) NewBase() *http.Transport {
	const (
		dialTimeout    = 10 * time.Second // of each step of connecting, as in mcphttp
		idleTimeout    = 90 * time.Second
		pingAfter      = 30 * time.Second // without a frame of an HTTP/2 peer
		pingTimeout    = 15 * time.Second
		idleConns      = 64
		maxHeaderBytes = 64 << 10
	)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:     n.tls.Clone(),
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConns:        idleConns, MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// HTTPClient returns a client that trusts the certificates of --cacert, nil without them.
func (n *Client) HTTPClient() *http.Client {
	if n.tls == nil {
		return nil
	}
	return &http.Client{Transport: n.NewBase()}
}

// RoundTripper returns the transport of httpClient, nil for the default.
func (n *Client) RoundTripper() http.RoundTripper {
	if c := n.HTTPClient(); c != nil {
		return c.Transport
	}
	return nil
}

// NewFetcher returns a Fetcher that trusts the certificates of --cacert. wrap may be nil. The allowed hosts may use
// internal addresses.
func (n *Client) NewFetcher(
	log *slog.Logger, wrap func(base http.RoundTripper) http.RoundTripper, allowed ...string,
) *oauth.Fetcher {
	return oauth.NewFetcher(&oauth.FetcherOptions{Proxy: http.ProxyFromEnvironment, Logger: log, TLSConfig: n.tls,
		Wrap: wrap, AllowedHosts: allowed})
}
