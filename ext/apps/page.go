package apps

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Page is a view as a host got it from a server: a stranger's document, and what it may do.
type Page struct {
	// URI is the view's, as it was asked for.
	URI string
	// HTML is the document, UTF-8 and within the size that the host takes. Nothing in it has been made harmless: that is
	// what the frame is for.
	HTML string
	// Frame is what the server asks for, without what cannot be granted. A host may take away more before it uses the
	// page.
	Frame Frame
	// Dropped says what the server asked for and does not get, with the reasons, for a log.
	Dropped []string
}

// Values of the sandbox attribute of the frame that holds a page. The page never reaches its host or the top window; the
// events of forms happen, what they would send does not leave, by [CSP.Policy].
const (
	// Sandbox lets scripts run in an origin that is nobody's: without storage, and browsers give it no camera, microphone
	// or place.
	Sandbox = "allow-scripts allow-forms"
	// SandboxOwnOrigin lets scripts run in the origin that the page was served from. It is for hosts that give each view an
	// origin which it shares with nothing: not with the host, nor with another server's view.
	SandboxOwnOrigin = Sandbox + " allow-same-origin"
)

// Policy returns the page's Content-Security-Policy, see [CSP.Policy].
func (p *Page) Policy() string { return p.Frame.CSP.Policy() }

// Allow returns the value of the allow attribute of the frame that holds the page; empty for no permissions.
//
// Spec: SEP-1865, Content Security Policy Enforcement.
func (p *Page) Allow() string {
	wanted, _ := p.Frame.Permissions.features()
	return strings.Join(wanted, "; ")
}

// Digest names the document by its content, as "sha256:" and hexadecimal digits, for lists of what a host lets pass.
//
// Spec: SEP-1865, Predeclared Resource Review.
func (p *Page) Digest() string {
	sum := sha256.Sum256([]byte(p.HTML))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// HeaderOptions configures [Page.Header].
type HeaderOptions struct {
	// Embedder is the origin of the host's own page, such as "https://host.example": no other shows the page in a frame.
	// Default: anybody may, as for native hosts, whose pages have no origin.
	Embedder string
	// OwnOrigin says that the page is served from an origin that it shares with nothing, and that its frame has
	// [SandboxOwnOrigin]. Default: the header holds the page to [Sandbox].
	OwnOrigin bool
}

// Header returns the HTTP header under which a host serves the page. The options may be nil. The page is then as safe opened
// by itself as it is in its frame. It needs an origin that is not the host's. The only error is an Embedder that is no
// origin.
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

// pageFrom takes what a server gave for a view. framed reports whether its contents say what the view needs.
//
// Spec: SEP-1865, Content Requirements.
func pageFrom(uri string, r *mcp.ReadResult, maxSize int) (p *Page, framed bool, err error) {
	if len(r.Contents) != 1 || r.Contents[0] == nil {
		return nil, false, fmt.Errorf("it has %d contents, want one", len(r.Contents))
	}
	c := r.Contents[0]
	p = &Page{URI: uri, HTML: c.Text}
	switch {
	case c.URI != uri:
		return nil, false, fmt.Errorf("the contents are those of %.128q", c.URI)
	case !isViewType(c.MIMEType):
		return nil, false, fmt.Errorf("its type is %.128q, want %q", c.MIMEType, MIMEType)
	case c.Text != "" && len(c.Blob) > 0:
		return nil, false, errors.New("it has a text and a blob, want one of them")
	case len(c.Blob) > 0:
		p.HTML = string(c.Blob)
	}
	switch {
	case p.HTML == "":
		return nil, false, errors.New("the document is empty")
	case len(p.HTML) > maxSize:
		return nil, false, fmt.Errorf("the document has %d bytes, at most %d are taken", len(p.HTML), maxSize)
	case !utf8.ValidString(p.HTML):
		return nil, false, errors.New("the document is not UTF-8")
	}
	p.Frame, framed, err = frameFrom(c.Meta)
	return p, framed, err
}
