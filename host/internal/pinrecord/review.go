package pinrecord

import (
	"encoding/json"
	"slices"
	"time"
)

// A Found is a definition that a server sent.
type Found struct {
	Name, Digest string
	JSON         json.RawMessage
}

// A Review compares the definitions that a server sent for a caller with its record.
type Review struct {
	Kind    string
	Found   []Found
	Caller  string // empty for the local user
	Lists   bool   // the list does not depend on the caller: mark its approved items as listed for all callers
	First   bool   // approve the definitions if the kind has no record
	Approve bool   // approve the definitions
	Added   bool   // approve names that the record does not contain
	// Approved is a record whose approved forms are approved; it may be nil.
	Approved *Record
}

// Apply adds the definitions that were found to a record. It returns the names of definitions with a form that
// is quarantined from now on.
func (v *Review) Apply(r *Record) (quarantined []string) {
	k := r.Kinds[v.Kind]
	approve := v.Approve || v.First && k == nil
	if k == nil {
		k = &Definitions{}
		r.Kinds[v.Kind] = k
	}
	if k.Items == nil {
		k.Items = map[string]*Item{}
	}
	now, size, present := time.Now().UTC(), 0, map[string]bool{}
	complete := true
	for _, d := range v.Found {
		present[d.Name] = true
		form := Form{Digest: d.Digest, Time: now, Caller: v.Caller}
		if size += len(d.JSON); len(d.JSON) <= maxPinned && size <= maxPinnedBytes {
			form.JSON = string(d.JSON)
		} else {
			complete = false
		}
		item := k.Items[d.Name]
		isNew := item == nil
		if isNew {
			item = &Item{}
			k.Items[d.Name] = item
		}
		known := v.Approved != nil && v.Approved.IsApproved(v.Kind, d.Name, d.Digest)
		if item.find(form, approve || known || v.Added && isNew) {
			quarantined = append(quarantined, d.Name)
		}
		if v.Caller == "" || v.Lists && r.IsApproved(v.Kind, d.Name, d.Digest) {
			item.Listed = d.Digest
		}
	}
	for name, item := range k.Items {
		if !present[name] {
			item.Pending = item.pendingOfOthers(v.Caller)
			if v.Caller == "" {
				item.Listed = ""
			}
		}
		if len(item.Approved)+len(item.Pending) == 0 {
			delete(k.Items, name)
		}
	}
	if v.Caller == "" || v.Lists && !k.Complete {
		k.Complete = complete
	}
	if v.Added {
		k.forget(present)
	}
	return quarantined
}

// forget removes the text of definitions that are no longer listed and, beyond maxUnlisted, the oldest.
func (k *Definitions) forget(present map[string]bool) {
	var names []string
	for name, item := range k.Items {
		if present[name] || item.Listed != "" || len(item.Pending) > 0 {
			continue
		}
		names = append(names, name)
		for i := range item.Approved {
			item.Approved[i].JSON = ""
		}
	}
	if len(names) <= maxUnlisted {
		return
	}
	slices.SortFunc(names, func(a, b string) int { return k.Items[a].last().Compare(k.Items[b].last()) })
	for _, name := range names[:len(names)-maxUnlisted] {
		delete(k.Items, name)
	}
}

// last returns when a form was last approved.
func (i *Item) last() (t time.Time) {
	if len(i.Approved) > 0 {
		t = i.Approved[0].Time
	}
	return t
}

// find adds a form that was found for a caller. It reports whether the form is quarantined from now on.
func (i *Item) find(d Form, approve bool) (isNew bool) {
	known := slices.ContainsFunc(i.Pending, func(p Form) bool { return p.Digest == d.Digest })
	switch {
	case i.IsApproved(d.Digest):
		i.Pending = i.pendingOfOthers(d.Caller)
	case approve:
		i.Pending = i.pendingOfOthers(d.Caller)
		d.Caller = ""
		i.addApproved(d)
	case slices.ContainsFunc(i.Pending, func(p Form) bool {
		return p.Digest == d.Digest && p.Caller == d.Caller
	}):
	default:
		i.Pending = slices.Insert(i.pendingOfOthers(d.Caller), 0, d)
		i.Pending = i.Pending[:min(len(i.Pending), maxPending)]
		return !known
	}
	return false
}

func (i *Item) pendingOfOthers(caller string) []Form {
	return slices.DeleteFunc(slices.Clone(i.Pending), func(d Form) bool { return d.Caller == caller })
}
