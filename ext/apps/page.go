package apps

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Page is a view that a host read from a server: an untrusted document, and the permissions that
// its frame may do.
type Page struct {
	// URI is the URI of the view.
	URI string
	// HTML is the document, in valid UTF-8 and at most HostOptions.MaxPage bytes long. It is not
	// sanitized: the frame isolates it.
	HTML string
	// Frame contains the permissions that the server asks for, without permissions that cannot be
	// granted. A host may restrict it further before it uses the page.
	Frame Frame
	// Dropped lists the permissions that the server asked for and did not get, with the reasons,
	// for a log.
	Dropped []string
}

// Values of the sandbox attribute of the frame that holds a page. With both the page cannot access
// its host or the top window. Forms work for scripts, but [CSP.Policy] prevents that they are
// submitted.
const (
	// Sandbox runs scripts in an opaque origin: without storage, and without access to camera,
	// microphone or location.
	Sandbox = "allow-scripts allow-forms"
	// SandboxOwnOrigin runs scripts in the origin that the page was served from. It is for hosts
	// that serve each view from an origin of its own, which neither the host nor another server's
	// view uses.
	SandboxOwnOrigin = Sandbox + " allow-same-origin"
)

// Policy returns the page's Content-Security-Policy, see [CSP.Policy].
func (p *Page) Policy() string { return p.Frame.CSP.Policy() }

// Allow returns the value of the allow attribute of the frame that holds the page. It is empty
// without permissions.
//
// Spec: SEP-1865, Content Security Policy Enforcement.
func (p *Page) Allow() string {
	wanted, _ := p.Frame.Permissions.features()
	return strings.Join(wanted, "; ")
}

// Digest returns a digest of the document, "sha256:" with hexadecimal digits, for lists of
// documents that a host allows.
//
// Spec: SEP-1865, Predeclared Resource Review.
func (p *Page) Digest() string {
	sum := sha256.Sum256([]byte(p.HTML))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// HeaderOptions configures [Page.Header].
type HeaderOptions struct {
	// Embedder is the origin of the host's own page, such as "https://host.example": only that may
	// show the page in a frame. Default: any page may, as native hosts need it, whose pages have no
	// origin.
	Embedder string
	// OwnOrigin selects [SandboxOwnOrigin]: the page is served from an origin of its own. Default:
	// the header contains [Sandbox].
	OwnOrigin bool
}

// Header returns the HTTP header with which a host serves the page, from another origin than its
// own. The options may be nil. The header isolates the page also if it is opened outside its frame.
// Header returns an error if Embedder is not an origin.
//
//	maps.Copy(w.Header(), header)
//	io.WriteString(w, page.HTML)
//
// Spec: SEP-1865, Sandbox proxy, Content Security Policy Enforcement.
func (p *Page) Header(opts *HeaderOptions) (map[string][]string, error) {
	var full HeaderOptions
	if opts != nil {
		full = *opts
	}
	sandbox := Sandbox
	if full.OwnOrigin {
		sandbox = SandboxOwnOrigin
	}
	policy := p.Policy() + "; sandbox " + sandbox
	if full.Embedder != "" {
		o, err := parseOrigin(full.Embedder, false)
		if err != nil {
			return nil, fmt.Errorf("apps: HeaderOptions.Embedder: %w", err)
		}
		policy += "; frame-ancestors " + o.text
	}
	_, refused := p.Frame.Permissions.features()
	for i, name := range refused {
		refused[i] = name + "=()"
	}
	h := map[string][]string{
		"Content-Type":            {"text/html; charset=utf-8"},
		"Content-Security-Policy": {policy},
		"X-Content-Type-Options":  {"nosniff"},
		"Referrer-Policy":         {"no-referrer"},
	}
	if len(refused) > 0 {
		h["Permissions-Policy"] = []string{strings.Join(refused, ", ")}
	}
	return h, nil
}

// pageFrom returns the page of a view that was read. framed reports whether the contents have a
// Frame in their metadata. Spec: SEP-1865, Content Requirements.
func pageFrom(uri string, r *mcp.ReadResourceResult, maxSize int) (p *Page, framed bool, err error) {
	if len(r.Contents) != 1 || r.Contents[0] == nil {
		return nil, false, fmt.Errorf("the result has %d contents, want 1", len(r.Contents))
	}
	c := r.Contents[0]
	p = &Page{URI: uri, HTML: c.Text}
	switch {
	case c.URI != uri:
		return nil, false, fmt.Errorf("the contents have the URI %.128q", c.URI)
	case !isViewType(c.MIMEType):
		return nil, false, fmt.Errorf("the MIME type is %.128q, want %q", c.MIMEType, MIMEType)
	case c.Text != "" && len(c.Blob) > 0:
		return nil, false, errors.New("the contents have text and blob, want one of them")
	case len(c.Blob) > 0:
		p.HTML = string(c.Blob)
	}
	switch {
	case p.HTML == "":
		return nil, false, errors.New("the document is empty")
	case len(p.HTML) > maxSize:
		return nil, false, fmt.Errorf("the document has %d bytes, the limit is %d", len(p.HTML), maxSize)
	case !utf8.ValidString(p.HTML):
		return nil, false, errors.New("the document is not UTF-8")
	}
	framed, err = decodeMeta(c.Meta, &p.Frame)
	return p, framed, err
}

// Policy returns the Content-Security-Policy of a view. It allows the document itself and the
// origins of c. Invalid origins, and origins after the first 32 of a list, are left out, so that c
// cannot inject directives into the policy.
//
// It is the policy of the specification with two further restrictions, which the specification
// allows: forms cannot be submitted, and without ConnectDomains the view cannot connect.
//
// Spec: SEP-1865, Host Behavior, Content Security Policy Enforcement.
func (c CSP) Policy() string {
	resources := sources(c.ResourceDomains, false)
	var b strings.Builder
	directive := func(name string, values ...string) {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(name)
		for _, v := range values {
			b.WriteByte(' ')
			b.WriteString(v)
		}
	}
	with := func(own ...string) []string { return slices.Concat(own, resources) }
	directive("default-src", "'none'")
	directive("script-src", with("'self'", "'unsafe-inline'")...)
	directive("style-src", with("'self'", "'unsafe-inline'")...)
	directive("img-src", with("'self'", "data:")...)
	directive("font-src", with("'self'")...)
	directive("media-src", with("'self'", "data:")...)
	directive("connect-src", orElse(sources(c.ConnectDomains, true), "'none'")...)
	directive("frame-src", orElse(sources(c.FrameDomains, false), "'none'")...)
	directive("object-src", "'none'")
	directive("base-uri", orElse(sources(c.BaseURIDomains, false), "'self'")...)
	directive("form-action", "'none'")
	return b.String()
}

// sources returns the valid origins among texts, without duplicates.
func sources(texts []string, sockets bool) (found []string) {
	for _, text := range texts[:min(len(texts), maxOrigins)] {
		if o, err := parseOrigin(text, sockets); err == nil && !slices.Contains(found, o.text) {
			found = append(found, o.text)
		}
	}
	return found
}

func orElse(values []string, other string) []string {
	if len(values) == 0 {
		return []string{other}
	}
	return values
}
