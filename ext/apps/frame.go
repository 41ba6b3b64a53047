package apps

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Frame says what a view needs of the frame that it is shown in. The zero value needs nothing: the document is all there
// is.
//
// Spec: SEP-1865, UIResourceMeta.
type Frame struct {
	// CSP names the origins that the view uses. Default: none.
	CSP CSP `json:"csp,omitzero"`
	// Permissions are what the view wants to use of the user's devices. A host may refuse them, so the view has to look
	// whether it got them. Default: none.
	Permissions Permissions `json:"permissions,omitzero"`
	// Domain asks for an origin of the view's own, in a form that each host defines for itself. Default: the host chooses.
	Domain string `json:"domain,omitzero"`
	// PrefersBorder asks for a border and background around the view, or for none. Default: the host chooses.
	PrefersBorder *bool `json:"prefersBorder,omitzero"`
}

// A CSP names the origins that a view uses, each as scheme and host, such as "https://api.example.com" or
// "https://cdn.example.com:8443". The scheme is https, also wss in ConnectDomains, and http or ws on this machine alone
// (localhost, 127.0.0.1). A host may begin with "*.", which stands for all its subdomains. At most 32 origins to a list.
//
// Spec: SEP-1865, McpUiResourceCsp.
type CSP struct {
	// ConnectDomains are where it may send requests, by fetch, XMLHttpRequest and WebSocket.
	ConnectDomains []string `json:"connectDomains,omitempty"`
	// ResourceDomains are where its scripts, styles, pictures, fonts and media come from.
	ResourceDomains []string `json:"resourceDomains,omitempty"`
	// FrameDomains are what it may show in frames of its own.
	FrameDomains []string `json:"frameDomains,omitempty"`
	// BaseURIDomains are what its base element may name.
	BaseURIDomains []string `json:"baseUriDomains,omitempty"`
}

// Permissions are what a view wants to use of the user's devices.
//
// Spec: SEP-1865, UIResourceMeta.
type Permissions struct {
	Camera         Permission `json:"camera,omitzero"`
	Microphone     Permission `json:"microphone,omitzero"`
	Geolocation    Permission `json:"geolocation,omitzero"`
	ClipboardWrite Permission `json:"clipboardWrite,omitzero"`
}

// A Permission is wanted or not; {} on the wire if it is.
type Permission bool

// MarshalJSON encodes the permission.
func (p Permission) MarshalJSON() ([]byte, error) {
	if p {
		return []byte("{}"), nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON decodes the permission.
func (p *Permission) UnmarshalJSON(raw []byte) error {
	switch {
	case string(raw) == "null":
		*p = false
	case len(raw) > 0 && raw[0] == '{':
		*p = true
	default:
		return errors.New("want an object")
	}
	return nil
}

// features returns the permissions that are wanted, by their names in a Permissions Policy; with refused, those that are
// not.
func (p Permissions) features() (wanted, refused []string) {
	for _, f := range []struct {
		name   string
		wanted Permission
	}{
		{"camera", p.Camera}, {"microphone", p.Microphone}, {"geolocation", p.Geolocation}, {"clipboard-write", p.ClipboardWrite},
	} {
		if f.wanted {
			wanted = append(wanted, f.name)
		} else {
			refused = append(refused, f.name)
		}
	}
	return wanted, refused
}

// Bounds of what a server says about a view.
const (
	// maxOrigins bounds each list of origins: one list is repeated five times in a header.
	maxOrigins = 32
	// maxDomain bounds Frame.Domain: names have no more characters.
	maxDomain = 253
	// maxMeta bounds the JSON of a server's metadata: four full lists of the longest names.
	maxMeta = 64 << 10
	// maxURI bounds the URI of a view.
	maxURI = 2 << 10
)

// check finds what keeps the frame from being declared.
func (f *Frame) check() error {
	for _, l := range f.CSP.lists() {
		if len(*l.origins) > maxOrigins {
			return fmt.Errorf("%s has %d origins, at most %d can be declared", l.name, len(*l.origins), maxOrigins)
		}
		for _, text := range *l.origins {
			if _, err := parseOrigin(text, l.sockets); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return checkDomain(f.Domain)
}

// checkDomain holds a domain to what can be a name of any form: hosts decide the rest.
func checkDomain(text string) error {
	if len(text) > maxDomain {
		return fmt.Errorf("domain has %d characters, at most %d can be declared", len(text), maxDomain)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !isNameRune(r) && r != '.' }); i >= 0 {
		return fmt.Errorf("domain %q holds more than letters, digits, hyphens and dots", text)
	}
	return nil
}

// A list is one of the lists of a CSP.
type list struct {
	name    string
	origins *[]string
	sockets bool // WebSockets may be among them
}

func (c *CSP) lists() []list {
	return []list{
		{"connectDomains", &c.ConnectDomains, true},
		{"resourceDomains", &c.ResourceDomains, false},
		{"frameDomains", &c.FrameDomains, false},
		{"baseUriDomains", &c.BaseURIDomains, false},
	}
}

// clean drops what a host does not grant, and says what that was. insecureLocal lets origins of the user's own machine and
// network pass.
func (f *Frame) clean(insecureLocal bool) (dropped []string) {
	drop := func(name, text string, why error) {
		const shown = 128 // a stranger's text, for a log
		dropped = append(dropped, fmt.Sprintf("%s: %.*q: %v", name, shown, text, why))
	}
	for _, l := range f.CSP.lists() {
		given := *l.origins
		*l.origins = nil
		if len(given) > maxOrigins {
			drop(l.name, given[maxOrigins], fmt.Errorf("it and what is behind it are more than %d origins", maxOrigins))
			given = given[:maxOrigins]
		}
		for _, text := range given {
			o, err := parseOrigin(strings.TrimSuffix(text, "/"), l.sockets)
			if err == nil && o.local && !insecureLocal {
				err = errors.New("it is on the user's own machine or network")
			}
			switch {
			case err != nil:
				drop(l.name, text, err)
			case !slices.Contains(*l.origins, o.text):
				*l.origins = append(*l.origins, o.text)
			}
		}
	}
	if err := checkDomain(f.Domain); err != nil {
		drop("domain", f.Domain, errors.New("it is no name"))
		f.Domain = ""
	}
	return dropped
}

// frameFrom reads the frame in a server's `_meta`, strictly. There is none if found is false.
func frameFrom(meta mcp.Meta) (f Frame, found bool, err error) {
	found, err = decodeMeta(meta, &f)
	return f, found, err
}

// decodeMeta reads a server's metadata of the extension into v, which has the types of the specification. Members that it
// does not know are left out.
func decodeMeta(meta mcp.Meta, v any) (found bool, err error) {
	value, ok := meta[metaKey]
	if !ok || value == nil {
		return false, nil
	}
	raw, err := jsonv2.Marshal(value)
	if err != nil {
		return true, fmt.Errorf("_meta.ui: %w", err)
	}
	if len(raw) > maxMeta {
		return true, fmt.Errorf("_meta.ui has %d bytes, at most %d are taken", len(raw), maxMeta)
	}
	if raw[0] != '{' {
		return true, errors.New("_meta.ui is no object")
	}
	if err := jsonv2.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("_meta.ui: %w", err)
	}
	return true, nil
}
