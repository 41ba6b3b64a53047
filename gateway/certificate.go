package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// CertificateIssuer is the issuer of principals that a client certificate identifies.
const CertificateIssuer = "patchbay:certificate"

// A CertificateName is the part of a client certificate that names a caller.
type CertificateName string

// Parts of client certificates. A certificate must contain exactly one name of the chosen kind.
const (
	NameCommon CertificateName = "commonName" // of the subject
	NameEmail  CertificateName = "email"      // an alternative name
	NameDNS    CertificateName = "dns"        // an alternative name
	NameURI    CertificateName = "uri"        // an alternative name, such as the ID of a SPIFFE workload
)

const (
	maxCertificateName = 256     // characters: an identity provider's longest user name
	maxAuthorities     = 256     // a company has a few; each handshake tells clients about all of them
	maxAuthoritiesFile = 1 << 20 // bytes: room for maxAuthorities certificates of 4 KiB
)

// ClientCertificates accepts client certificates (mutual TLS) as the credentials of callers. The
// listener of [Gateway.Serve] must return connections of crypto/tls, which must verify a certificate
// with [Authorities.Pool]. A request with a header Authorization is the request of the key or token
// in the header, and its certificate is ignored.
type ClientCertificates struct {
	// Authorities sign the certificates of callers.
	Authorities *Authorities
	// Name is the part of a certificate that is the subject of its principal, whose issuer is
	// [CertificateIssuer]. All certificates with a name are one caller. Default: [NameCommon].
	Name CertificateName
	// Profiles contains profiles by name: a certificate grants only the profile of its name, and no
	// other names are accepted. Nil means that each certificate grants all servers.
	Profiles map[string]string
}

// Authorities are the certificate authorities that sign client certificates. They are safe for
// concurrent use, and may change while a gateway runs.
type Authorities struct {
	mu    sync.RWMutex // guards the fields below
	pool  *x509.CertPool
	roots map[[sha256.Size]byte]*authority
}

// An authority is a certificate whose requests end when it is no longer trusted.
type authority struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// ParseAuthorities returns the certificate authorities of a PEM file. It returns an error if the
// text contains no certificate, something else than certificates, or more than 256 certificates.
func ParseAuthorities(text []byte) (*Authorities, error) {
	a := &Authorities{roots: map[[sha256.Size]byte]*authority{}}
	return a, a.Replace(text)
}

// Replace replaces the authorities by the authorities of a PEM file. Requests in progress whose
// authority is not among them end. After an error, the authorities are unchanged.
func (a *Authorities) Replace(text []byte) error {
	pool, sums, err := readAuthorities(text)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	roots := make(map[[sha256.Size]byte]*authority, len(sums))
	for _, sum := range sums {
		if roots[sum] = a.roots[sum]; roots[sum] == nil {
			ctx, end := context.WithCancelCause(context.Background())
			roots[sum] = &authority{ctx, end}
		}
	}
	for sum, old := range a.roots {
		if roots[sum] == nil {
			old.end(errUntrusted)
		}
	}
	a.pool, a.roots = pool, roots
	return nil
}

func readAuthorities(text []byte) (pool *x509.CertPool, sums [][sha256.Size]byte, err error) {
	if len(text) > maxAuthoritiesFile {
		return nil, nil, fmt.Errorf("gateway: certificate authorities of %d bytes, want at most %d", len(text),
			maxAuthoritiesFile)
	}
	pool = x509.NewCertPool()
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, nil, fmt.Errorf("gateway: got a %.64q among certificate authorities, want certificates only",
				block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("gateway: certificate authority %d: %w", len(sums)+1, err)
		}
		if len(sums) == maxAuthorities {
			return nil, nil, fmt.Errorf("gateway: more than %d certificate authorities", maxAuthorities)
		}
		pool.AddCert(c)
		sums = append(sums, sha256.Sum256(c.Raw))
	}
	if begun > len(sums) { // Decode skips a damaged block, or the end of a file that is being written
		return nil, nil, fmt.Errorf("gateway: %d of %d certificate authorities are damaged or incomplete",
			begun-len(sums), begun)
	}
	if len(sums) == 0 {
		return nil, nil, errors.New("gateway: no certificate authority in PEM (-----BEGIN CERTIFICATE-----)")
	}
	return pool, sums, nil
}

// Pool returns the authorities for tls.Config.ClientCAs. A later Replace does not change the pool, so
// that a listener must ask for it at each handshake, in tls.Config.GetConfigForClient.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.pool
}

// Reasons of refusals, for logs and records.
var (
	errUntrusted          = errors.New("the authority of the client certificate is no longer trusted")
	errExpiredCertificate = errors.New("expired client certificate")
	errUnknownName        = errors.New("client certificate without a profile")
)

// trusted returns the authority of a verified chain, and the time at which the first certificate of
// the chain expires. A connection may be older than the last Replace.
func (a *Authorities) trusted(s *tls.ConnectionState) (root *authority, expires time.Time, err error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	err = errUntrusted
	for _, chain := range s.VerifiedChains {
		last := a.roots[sha256.Sum256(chain[len(chain)-1].Raw)]
		if last == nil {
			continue
		}
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if !time.Now().Before(end) {
			err = errExpiredCertificate
			continue
		}
		if end.After(expires) {
			root, expires = last, end
		}
	}
	if root != nil {
		err = nil
	}
	return root, expires, err
}

// check returns an error for options that accept no certificate.
func (o *ClientCertificates) check() error {
	names := []CertificateName{"", NameCommon, NameEmail, NameDNS, NameURI}
	switch {
	case o == nil:
		return nil
	case o.Authorities == nil:
		return errors.New("Certificates needs Authorities")
	case !slices.Contains(names, o.Name):
		return fmt.Errorf("invalid Certificates.Name %.64q: want one of %q", string(o.Name), names[1:])
	}
	return nil
}

// name returns the only name of the kind in a certificate.
func (k CertificateName) name(c *x509.Certificate) (string, error) {
	var names []string
	switch k {
	case NameEmail:
		names = c.EmailAddresses
	case NameDNS:
		names = c.DNSNames
	case NameURI:
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	default:
		commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
		for _, a := range c.Subject.Names {
			if text, ok := a.Value.(string); ok && a.Type.Equal(commonName) {
				names = append(names, text)
			}
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("client certificate with %d names of the kind %s, want 1", len(names), k)
	}
	name := names[0]
	if name == "" || len(name) > maxCertificateName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return "", fmt.Errorf("client certificate with the invalid name %.64q", name)
	}
	return name, nil
}

// caller returns the principal of a certificate, and the grant of the certificate.
func (o *ClientCertificates) caller(c *x509.Certificate) (*mcp.Principal, *grant, error) {
	name, err := o.Name.name(c)
	if err != nil {
		return nil, nil, err
	}
	claims := map[string]any{}
	add := func(claim string, values []string) {
		if len(values) > 0 {
			all := make([]any, len(values))
			for i, v := range values {
				all[i] = strings.ToValidUTF8(v, "\uFFFD")
			}
			claims[claim] = all
		}
	}
	add("organization", c.Subject.Organization)
	add("organizationalUnit", c.Subject.OrganizationalUnit)
	add("email", c.EmailAddresses)
	add("dns", c.DNSNames)
	p := &mcp.Principal{Issuer: CertificateIssuer, Subject: name, Claims: claims}
	if o.Profiles == nil {
		return p, localGrant, nil
	}
	profile, known := o.Profiles[name]
	if !known {
		return p, nil, errUnknownName
	}
	return p, &grant{profiles: []string{profile}}, nil
}

// hasCertificate reports whether the client of a connection sent a certificate.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 }

// serve serves a request to a gateway whose connection has a verified client certificate. The request
// ends with the certificate or the trust in its authority.
func (o *ClientCertificates) serve(g *Gateway, w http.ResponseWriter, r *http.Request, next http.Handler) {
	root, expires, err := o.Authorities.trusted(r.TLS)
	if err != nil {
		g.refuse(w, r, err, nil)
		return
	}
	p, opens, err := o.caller(r.TLS.VerifiedChains[0][0])
	if err != nil {
		g.refuse(w, r, err, nil)
		return
	}
	if g.accepted.isDue(p) {
		g.recordLogin(p, loginDetail{Outcome: outcomeAccepted, Remote: remoteIP(r), Path: cutText(r.URL.Path)})
	}
	ctx, end := context.WithDeadlineCause(r.Context(), expires,
		fmt.Errorf("%w: %w", mcp.ErrClosed, errExpiredCertificate))
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(root.ctx, func() {
		cancel(fmt.Errorf("%w: %w", mcp.ErrClosed, context.Cause(root.ctx)))
	})()
	next.ServeHTTP(w, withGrant(mcp.WithPrincipal(ctx, p), r, opens))
}
