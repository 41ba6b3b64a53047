package pinrecord

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Kinds contains the kinds of definitions in lists.
var Kinds = [catalogue.Kinds]string{"tool", "prompt", "resource", "resource template", "event"}

// List returns the list of a kind as it was last read for the local user, nil if it is unknown.
func (r *Record) List(kind catalogue.Kind) *catalogue.List {
	k := r.Kinds[Kinds[kind]]
	if k == nil || !k.Complete {
		return nil
	}
	page := []byte(`{"` + kind.Member() + `":[`)
	for _, item := range k.Items {
		if item.Listed == "" {
			continue
		}
		form := item.listed()
		if form == nil || form.JSON == "" {
			return nil
		}
		page = append(append(page, form.JSON...), ',')
	}
	return catalogue.Parse(kind, append(bytes.TrimSuffix(page, []byte{','}), "]}"...))
}

// DropTexts removes the texts of the definitions in lists without a quarantined form. Such a record must not be
// written.
func (r *Record) DropTexts() {
	for _, kind := range Kinds {
		for _, item := range r.Of(kind).Items {
			if len(item.Pending) > 0 { // a refusal shows the change
				continue
			}
			for i := range item.Approved {
				item.Approved[i].JSON = ""
			}
		}
	}
}

// listed returns the form that was last listed for the local user, nil if the item was not listed.
func (i *Item) listed() *Form {
	for _, forms := range [][]Form{i.Approved, i.Pending} {
		for n := range forms {
			if forms[n].Digest == i.Listed {
				return &forms[n]
			}
		}
	}
	return nil
}

// Held returns the names of definitions that are not approved.
func (r *Record) Held(kind string, found []Found) map[string]struct{} {
	held := map[string]struct{}{}
	for _, d := range found {
		if !r.IsApproved(kind, d.Name, d.Digest) {
			held[d.Name] = struct{}{}
		}
	}
	return held
}

// FindAll returns the definitions in a list. The digest of a resource must not depend on its size and lastModified.
func FindAll(kind catalogue.Kind, l *catalogue.List) (all []Found) {
	for name, digest := range l.Digests() {
		raw := l.Definition(name)
		if kind == catalogue.Resources {
			digest = catalogue.DigestOf(withoutVolatile(raw))
		}
		all = append(all, Found{name, hex.EncodeToString(digest[:]), raw})
	}
	return all
}

// withoutVolatile returns the definition of a resource without the members that change with its content.
func withoutVolatile(raw json.RawMessage) json.RawMessage {
	if jsonscan.Has(raw, "size") {
		raw = jsonscan.Without(raw, "size")
	}
	annotations, _ := jsonscan.Get(raw, "annotations")
	if !jsonscan.IsObject(annotations) {
		return raw
	}
	if !jsonscan.Has(annotations, "lastModified") {
		return raw
	}
	if annotations = jsonscan.Without(annotations, "lastModified"); string(annotations) == "{}" {
		return jsonscan.Without(raw, "annotations")
	}
	return jsonscan.WithMember(raw, "annotations", annotations)
}

// CopyListed adds the forms of another record that were last listed for the local user. A form that is approved
// there becomes approved. CopyListed returns the names of the definitions, in order.
func (r *Record) CopyListed(found *Record) (names []Name) {
	r.Server = found.Server
	if found.Capabilities != nil {
		r.Capabilities, r.Revision = found.Capabilities, found.Revision
	}
	for _, kind := range slices.Sorted(maps.Keys(found.Kinds)) {
		from := found.Kinds[kind]
		v := &Review{Kind: kind, Approved: found}
		for _, name := range slices.Sorted(maps.Keys(from.Items)) {
			if form := from.Items[name].listed(); form != nil {
				v.Found = append(v.Found, Found{name, form.Digest, []byte(form.JSON)})
				names = append(names, Name{kind, name})
			}
		}
		v.Apply(r)
		to := r.Kinds[kind]
		to.Complete = from.Complete
		for _, d := range v.Found {
			item := to.Items[d.Name]
			if item.IsApproved(d.Digest) { // also for callers whose requests found it before
				item.Pending = slices.DeleteFunc(item.Pending, func(p Form) bool { return p.Digest == d.Digest })
			}
		}
	}
	return names
}
