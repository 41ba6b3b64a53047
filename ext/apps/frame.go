package apps

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Frame describes what a view needs in addition to its document. The zero value needs no
// permissions.
//
// Spec: SEP-1865, UIResourceMeta.
type Frame struct {
	// CSP lists the origins that the view uses. Default: none.
	CSP CSP `json:"csp,omitzero"`
	// Permissions are the permissions that the view asks for. A host may refuse them, and the view
	// must check the permissions that it got. Default: none.
	Permissions Permissions `json:"permissions,omitzero"`
	// Domain asks for a dedicated origin, in a form that the host defines. Default: the host
	// chooses.
	Domain string `json:"domain,omitzero"`
	// PrefersBorder asks for a border and background around the view, or for no border. Default:
	// the host chooses.
	PrefersBorder *bool `json:"prefersBorder,omitzero"`
}

// A CSP lists the origins that a view uses, such as "https://api.example.com" or
// "https://cdn.example.com:8443". The scheme is https, or wss in ConnectDomains; http and ws are
// allowed for localhost and 127.0.0.1 only. A host may begin with "*.", for all its subdomains. A
// list contains at most 32 origins.
//
// Spec: SEP-1865, McpUiResourceCsp.
type CSP struct {
	// ConnectDomains are the origins for fetch, XMLHttpRequest and WebSocket.
	ConnectDomains []string `json:"connectDomains,omitempty"`
	// ResourceDomains are the origins of scripts, styles, images, fonts and media.
	ResourceDomains []string `json:"resourceDomains,omitempty"`
	// FrameDomains are the origins of nested frames.
	FrameDomains []string `json:"frameDomains,omitempty"`
	// BaseURIDomains are the origins for the base element.
	BaseURIDomains []string `json:"baseUriDomains,omitempty"`
}

// Permissions are the browser permissions that a view asks for.
type Permissions struct {
	Camera         Permission `json:"camera,omitzero"`
	Microphone     Permission `json:"microphone,omitzero"`
	Geolocation    Permission `json:"geolocation,omitzero"`
	ClipboardWrite Permission `json:"clipboardWrite,omitzero"`
}

// A Permission is true if the view asks for it. It is {} in JSON then.
type Permission bool

// MarshalJSON returns {} or null.
func (p Permission) MarshalJSON() ([]byte, error) {
	if p {
		return []byte("{}"), nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON accepts an object or null.
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

// features returns the names in a Permissions Policy of the requested permissions and of the
// others.
func (p Permissions) features() (requested, others []string) {
	for _, f := range []struct {
		name      string
		requested Permission
	}{
		{"camera", p.Camera}, {"microphone", p.Microphone}, {"geolocation", p.Geolocation},
		{"clipboard-write", p.ClipboardWrite},
	} {
		if f.requested {
			requested = append(requested, f.name)
		} else {
			others = append(others, f.name)
		}
	}
	return requested, others
}

// Limits of the metadata of a view.
const (
	// maxOrigins limits each list of origins, because one list is repeated five times in a header.
	maxOrigins = 32
	// maxDomain limits Frame.Domain to the length of a DNS name.
	maxDomain = 253
	// maxMeta limits the encoded metadata: four full lists of the longest names fit.
	maxMeta = 64 << 10
	// maxURI limits the URI of a view.
	maxURI = 2 << 10
)

func (f *Frame) check() error {
	for _, l := range f.CSP.lists() {
		if len(*l.origins) > maxOrigins {
			return fmt.Errorf("%s has %d origins, the limit is %d", l.name, len(*l.origins), maxOrigins)
		}
		for _, text := range *l.origins {
			if _, err := parseOrigin(text, l.sockets); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return checkDomain(f.Domain)
}

// checkDomain returns an error if text cannot be part of a host name. Hosts define the exact form.
func checkDomain(text string) error {
	if len(text) > maxDomain {
		return fmt.Errorf("domain has %d characters, the limit is %d", len(text), maxDomain)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !isNameRune(r) && r != '.' }); i >= 0 {
		return fmt.Errorf("invalid domain %q: want letters, digits, hyphens and dots", text)
	}
	return nil
}

// An originList is a list of a CSP.
type originList struct {
	name    string
	origins *[]string
	sockets bool // allows wss and ws
}

func (c *CSP) lists() []originList {
	return []originList{
		{"connectDomains", &c.ConnectDomains, true},
		{"resourceDomains", &c.ResourceDomains, false},
		{"frameDomains", &c.FrameDomains, false},
		{"baseUriDomains", &c.BaseURIDomains, false},
	}
}

// clean removes permissions that a host does not grant, and returns descriptions of it.
// insecureLocal keeps origins of the user's machine and local network.
func (f *Frame) clean(insecureLocal bool) (dropped []string) {
	drop := func(name, text string, why error) {
		const shown = 128 // untrusted text in a log
		dropped = append(dropped, fmt.Sprintf("%s: %.*q: %v", name, shown, text, why))
	}
	for _, l := range f.CSP.lists() {
		declared := *l.origins
		*l.origins = nil
		if len(declared) > maxOrigins {
			drop(l.name, declared[maxOrigins],
				fmt.Errorf("this origin and all after it exceed the limit of %d", maxOrigins))
			declared = declared[:maxOrigins]
		}
		for _, text := range declared {
			o, err := parseOrigin(strings.TrimSuffix(text, "/"), l.sockets)
			if err == nil && o.local && !insecureLocal {
				err = errors.New("the origin is on the user's machine or local network")
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
		drop("domain", f.Domain, errors.New("not a host name"))
		f.Domain = ""
	}
	return dropped
}

// decodeMeta decodes a server's metadata of the extension into v. Unknown members are ignored.
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
		return true, fmt.Errorf("_meta.ui has %d bytes, the limit is %d", len(raw), maxMeta)
	}
	if raw[0] != '{' {
		return true, errors.New("_meta.ui is not an object")
	}
	if err := jsonv2.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("_meta.ui: %w", err)
	}
	return true, nil
}
