package catalogue

import "github.com/patchbay-mcp/patchbay/internal/jsonscan"

// Description returns the description of the item that callers see, or "".
func (i *Item) Description() string { return i.text("description") }

// HiddenArguments returns the arguments of a tool that the configuration hides.
func (i *Item) HiddenArguments() []string {
	if i.Kind != Tools {
		return nil
	}
	return i.options.HideArgs[i.Original]
}

func (i *Item) text(key string) string { return jsonscan.GetString(i.body, key) }

// AppendDefinition appends the definition with its public name or URI, as lists contain it. Other members
// are unchanged, except as configured by ServerOptions. Except in single mode, two mistakes that
// cost some clients their whole list are corrected: known members that are null are removed, also
// in icons, arguments and annotations, and an input schema without a type gets the type object.
func (i *Item) AppendDefinition(b []byte) []byte {
	d := jsonscan.Descend(i.body)
	for more := i.Public != i.Original && d.Into('{'); more; {
		var key []byte
		key, more = d.Key()
		start := d.At()
		value := d.Value()
		if more && string(key) == kinds[i.Kind].id {
			b = jsonscan.AppendQuote(append(b, i.body[:start]...), i.Public)
			return append(b, i.body[start+len(value):]...)
		}
	}
	return append(b, i.body...)
}

// Size returns the length of the definition without the bytes that escape a name.
func (i *Item) Size() int { return len(i.body) + len(i.Public) - len(i.Original) }

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
		i.options == s.Options && i.view == view && i.single == c.options.Single &&
		i.webhooks == c.options.Webhooks {
		return i
	}
	i := &Item{Kind: e.kind, Server: s.Name, ID: s.ID, Original: e.original, Public: public, Raw: e.raw,
		Digest: e.digest, options: s.Options, single: c.options.Single, view: view,
		webhooks: c.options.Webhooks}
	i.body = i.define()
	e.item.Store(i)
	return i
}
