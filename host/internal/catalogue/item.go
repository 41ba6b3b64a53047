package catalogue

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// An Item is an item of a server with its public form. It is immutable and shared by catalogues.
type Item struct {
	Kind     Kind
	Server   string // the name in the configuration
	ID       string // of the server, in public names
	Original string // the name, URI or template as the server knows it
	Public   string // the name, URI or template as callers know it
	// Raw is the definition as the server sent it.
	Raw json.RawMessage
	// Definition is the definition with its public name or URI, as lists contain it. Other members
	// are unchanged, except as configured by ServerOptions. Except in single mode, two mistakes that
	// cost some clients their whole list are corrected: known members that are null are removed, also
	// in icons, arguments and annotations, and an input schema without a type gets the type object.
	Definition json.RawMessage
	// Digest is the SHA-256 digest of Raw in canonical form.
	Digest [sha256.Size]byte

	options *ServerOptions
	single  bool   // only configured changes
	view    string // the public URI of a tool's view, if it differs from the original URI
}

// Description returns the description of the item that callers see, or "".
func (i *Item) Description() string { return i.text("description") }

// HiddenArguments returns the arguments of a tool that the configuration hides.
func (i *Item) HiddenArguments() []string {
	if i.Kind != Tools {
		return nil
	}
	return i.options.HideArgs[i.Original]
}

func (i *Item) text(key string) string {
	raw, _ := jsonscan.Get(i.Definition, key)
	text, _ := jsonscan.Unquote(raw)
	return text
}

// build returns the public form of an entry. It returns the previous form if the public name is the
// same.
func (c *Catalogue) build(s *member, e *entry, public string) *Item {
	view := ""
	if e.view != "" && !c.options.Single {
		view = c.PublicURI(s.Name, e.view)
		if view == e.view {
			view = ""
		}
	}
	if i := e.item.Load(); i != nil && i.Public == public && i.Server == s.Name && i.ID == s.ID &&
		i.options == s.Options && i.view == view && i.single == c.options.Single {
		return i
	}
	i := &Item{Kind: e.kind, Server: s.Name, ID: s.ID, Original: e.original, Public: public, Raw: e.raw,
		Digest: e.digest, options: s.Options, single: c.options.Single, view: view}
	i.Definition = i.define()
	e.item.Store(i)
	return i
}
