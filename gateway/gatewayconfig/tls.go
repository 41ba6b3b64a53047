package gatewayconfig

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A TLS makes a gateway serve https at Listen. It has either Certificate and Key, or ACME.
type TLS struct {
	// Certificate is a PEM file with the certificate of the gateway, followed by intermediate
	// certificates, and Key is a PEM file with its private key. The gateway reads changed files within
	// seconds. Paths are absolute if the path of the configuration file is known.
	Certificate string `json:"certificate,omitzero" jsonschema:"PEM file of the certificates,minLength=1"`
	Key         string `json:"key,omitzero" jsonschema:"PEM file of the private key,minLength=1"`
	// ACME gets certificates from a certificate authority; nil means files.
	ACME *ACME `json:"acme,omitzero" jsonschema:"gets certificates from an authority; absent for files"`
	// Clients accepts client certificates; nil means that the gateway asks for none.
	Clients *ClientCertificates `json:"clients,omitzero" jsonschema:"client certificates; absent for none"`
}

// An ACME is a certificate authority with the protocol of RFC 8555, such as Let's Encrypt.
type ACME struct {
	// Hosts contains the names of the gateway, which the authority must reach at port 443, or with
	// HTTP at port 80.
	Hosts []string `json:"hosts" jsonschema:"names of the gateway in DNS,minItems=1,maxItems=100"`
	// AcceptTerms accepts the terms of service of the authority, which requires it.
	AcceptTerms bool `json:"acceptTerms" jsonschema:"accept the terms of service of the authority,default=false"`
	// Email receives messages of the authority. Default: none.
	Email string `json:"email,omitzero" jsonschema:"receives messages of the authority,maxLength=254"`
	// Directory is the URL of the authority. Default: Let's Encrypt.
	Directory string `json:"directory" jsonschema:"https URL,default=https://acme-v02.api.letsencrypt.org/directory"`
	// HTTP is the address as host:port, such as :80, at which the gateway answers challenges of the
	// authority and redirects other requests to https. If it is empty, the authority must reach Listen
	// at port 443.
	HTTP string `json:"http,omitzero" jsonschema:"address for challenges and redirects as host:port"`
}

// ClientCertificates make the client certificates of connections (mutual TLS) the credentials of callers.
type ClientCertificates struct {
	// Authorities is a PEM file with the certificates that sign client certificates. The gateway reads
	// a changed file within seconds.
	Authorities string `json:"authorities" jsonschema:"PEM file of the certificate authorities,minLength=1"`
	// Name is the part of a certificate that names the caller.
	Name string `json:"name" jsonschema:"what names the caller,enum=commonName|email|dns|uri,default=commonName"`
	// Required refuses connections without a client certificate, also of clients with a key or a token.
	Required bool `json:"required" jsonschema:"refuse connections without a certificate,default=false"`
	// Profiles contains profiles by the name of the caller; other callers are refused. Nil means no
	// restriction.
	Profiles map[string]string `json:"profiles,omitzero" jsonschema:"profiles by name of the caller; absent for all"`
}

// checkTLS checks the member tls of the settings.
func (s *Settings) checkTLS(p *config.Problems) {
	t := s.TLS
	if t == nil {
		return
	}
	t.Certificate, t.Key = p.Path(t.Certificate), p.Path(t.Key)
	switch {
	case t.ACME != nil && (t.Certificate != "" || t.Key != ""):
		p.Add("/tls", "has acme and files: want acme, or certificate and key")
	case t.ACME == nil && (t.Certificate == "" || t.Key == ""):
		p.Add("/tls", "want certificate and key, or acme")
	}
	if s.PublicURL != "" && !strings.HasPrefix(s.PublicURL, "https:") {
		p.Add("/publicURL", "got %.100q with tls, want an https URL", s.PublicURL)
	}
	t.ACME.check(p, s.Listen)
	if c := t.Clients; c != nil {
		c.Authorities = p.Path(c.Authorities)
		for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
			if _, known := s.Profiles[c.Profiles[name]]; !known {
				p.Add(config.Pointer("tls", "clients", "profiles", name), "unknown profile %.64q", c.Profiles[name])
			}
		}
	}
}

func (a *ACME) check(p *config.Problems, listen string) {
	if a == nil {
		return
	}
	for _, host := range a.Hosts {
		if net.ParseIP(host) != nil || strings.ContainsAny(host, ":/@*[] ") || !strings.Contains(host, ".") {
			p.Add("/tls/acme/hosts", "got %.100q, want a name in DNS such as \"mcp.example.com\"", host)
			break
		}
	}
	if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		p.Add("/tls/acme/directory", "got %.100q, want an https URL", a.Directory)
	}
	if !a.AcceptTerms {
		p.Add("/tls/acme/acceptTerms", "must be true: an authority issues certificates only to people who accept its "+
			"terms of service")
	}
	if host, port, err := net.SplitHostPort(a.HTTP); a.HTTP != "" && (err != nil || !netx.ValidPort(port)) {
		p.Add("/tls/acme/http", "got %.64q, want host:port or :port, such as \":80\"", a.HTTP)
	} else if a.HTTP != "" && net.JoinHostPort(host, port) == listen {
		p.Add("/tls/acme/http", "got %q, which is also listen: want another port", a.HTTP)
	}
}
