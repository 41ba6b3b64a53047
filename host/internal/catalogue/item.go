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

func (i *Item) text(key string) string { return jsonscan.GetString(i.Definition, key) }

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
