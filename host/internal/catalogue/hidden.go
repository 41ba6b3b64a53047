package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// Hide returns the list with the items of some original names hidden: they keep their public names
// and URIs, but callers neither see nor reach them. It replaces the names that were hidden before.
func (l *List) Hide(names map[string]struct{}) *List {
	if l == nil {
		return nil
	}
	hiding := *l
	hiding.hidden, hiding.whole = names, cmp.Or(l.whole, l)
	return &hiding
}

// Hides reports whether the item of an original name is hidden by [List.Hide].
func (l *List) Hides(original string) bool {
	if l == nil {
		return false
	}
	_, hidden := l.hidden[original]
	return hidden
}

// HidesURI reports whether a hidden template of the list matches a URI, or may match it, if that
// takes too long to find out.
func (l *List) HidesURI(uri string) bool {
	if l == nil || l.kind != Templates {
		return false
	}
	budget := matchBudget
	return hidesURI(l.hidden, uri, &budget)
}

func hidesURI(templates map[string]struct{}, uri string, budget *int) bool {
	for template := range templates {
		t, err := uritemplate.Parse(template)
		if err != nil || len(uri) < len(t.LiteralPrefix()) || uri[:len(t.LiteralPrefix())] != t.LiteralPrefix() {
			continue
		}
		if *budget -= len(uri); *budget < 0 || matcher(t)(uri) {
			return true
		}
	}
	return false
}

// Has reports whether the list contains an item, hidden or not.
func (l *List) Has(original string) bool {
	_, ok := l.find(original)
	return ok
}

// Digests returns the original names or URIs with the digests of their definitions, sorted by name.
func (l *List) Digests() iter.Seq2[string, [sha256.Size]byte] {
	return func(yield func(string, [sha256.Size]byte) bool) {
		if l == nil {
			return
		}
		for _, e := range l.entries {
			if !yield(e.original, e.digest) {
				return
			}
		}
	}
}

// Definition returns the definition of an original name or URI as the server sent it, or nil.
func (l *List) Definition(original string) json.RawMessage {
	if i, ok := l.find(original); ok {
		return l.entries[i].raw
	}
	return nil
}

// Hidden returns the item of a public name that its list hides, and that the caller could see
// otherwise, or nil.
func (c *Catalogue) Hidden(k Kind, public string) *Item { return c.kinds[k].hidden[public] }

// DigestOf returns the SHA-256 digest of a valid value in the canonical form of [Item].
func DigestOf(raw json.RawMessage) [sha256.Size]byte { return digestOf(raw, new(jsontext.Value)) }
