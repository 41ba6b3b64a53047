package legacy

import (
	"iter"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A shape describes which parts of a JSON object depend on the revision. Everything else is copied
// unchanged.
type shape struct {
	fields   []field
	variants []variant
}

// A field is a member of an object. If several fields use the same key, the first that changes the
// member applies.
type field struct {
	key string
	// needs is the feature that the member belongs to; zero if there is no such feature. In a
	// revision without it, as rewrites the member; a nil as removes it.
	needs wire.Feature
	as    rewrite
	// instead repairs the object after the member was removed from it.
	instead repair
	// shape is the shape of the value, or of the elements of an array, in revisions that have the
	// member. With byName, it is that of the values of the object's members.
	shape  *shape
	byName bool
	// omitEmpty removes the member if its value became {}.
	omitEmpty bool
}

// A variant is a kind of object, identified by its member "type". A revision without the feature
// gets a replacement.
type variant struct {
	typ   string
	needs wire.Feature
	as    func(dst, obj []byte) []byte // appends the replacement of obj
}

// A rewrite appends the replacement of a member, with its key and without a comma. It appends
// no bytes to remove the member.
type rewrite func(dst []byte, key string, value []byte) []byte

// A repair changes the object that begins at start and ends dst. The object lost a member with the
// given value.
type repair func(dst []byte, start int, value []byte) []byte

// A projection is a shape compiled for a revision: only the parts that change in it. The nil
// projection changes no message.
type projection struct {
	fields   []projectedField
	variants []variant
}

type projectedField struct {
	key       string
	as        rewrite // if nil, nested is set or the member is removed
	nested    *projection
	byName    bool
	instead   repair
	omitEmpty bool
}

func project(rev wire.Revision, s *shape) *projection {
	if s == nil {
		return nil
	}
	var p projection
	for _, f := range s.fields {
		switch {
		case p.find([]byte(f.key)) != nil:
		case f.needs != 0 && !rev.Has(f.needs):
			p.fields = append(p.fields, projectedField{key: f.key, as: f.as, instead: f.instead})
		default:
			if nested := project(rev, f.shape); nested != nil {
				field := projectedField{key: f.key, nested: nested, byName: f.byName, omitEmpty: f.omitEmpty}
				p.fields = append(p.fields, field)
			}
		}
	}
	for _, v := range s.variants {
		if !rev.Has(v.needs) {
			p.variants = append(p.variants, v)
		}
	}
	if p.fields == nil && p.variants == nil {
		return nil
	}
	return &p
}

func (p *projection) find(key []byte) *projectedField {
	for i := range p.fields {
		if string(key) == p.fields[i].key {
			return &p.fields[i]
		}
	}
	return nil
}

// affects reports whether the projection may change the object.
func (p *projection) affects(obj []byte) bool {
	if p == nil {
		return false
	}
	d := jsonscan.Descend(obj)
	return p.affectsObject(&d)
}

// affectsObject is affects for the next value of d. It skips the value, or stops where it found
// a change.
func (p *projection) affectsObject(d *jsonscan.Descent) bool {
	if !d.Into('{') {
		d.Value()
		return false
	}
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if p.variants != nil && string(key) == "type" {
			if ahead := *d; p.variantOf(ahead.Value()) != nil {
				return true
			}
		}
		if f := p.find(key); f == nil {
			d.Value()
		} else if f.affects(d) {
			return true
		}
	}
	return false
}

// affects reports whether the projection may change the member whose value is next.
func (f *projectedField) affects(d *jsonscan.Descent) bool {
	switch {
	case f.nested == nil:
		return true
	case f.omitEmpty:
		value := d.Value()
		inner := jsonscan.Descend(value)
		return isEmptyObject(value) || f.nested.affectsValue(&inner)
	case f.byName && d.Into('{'):
		for _, ok := d.Key(); ok; _, ok = d.Key() {
			if f.nested.affectsValue(d) {
				return true
			}
		}
		return false
	}
	return f.nested.affectsValue(d)
}

func isEmptyObject(value []byte) bool {
	for range jsonscan.Members(value) {
		return false
	}
	return jsonscan.Kind(value) == '{'
}

// affectsValue is affectsObject for an object, or for the objects in an array.
func (p *projection) affectsValue(d *jsonscan.Descent) bool {
	if !d.Into('[') {
		return p.affectsObject(d)
	}
	for d.More() {
		if p.affectsObject(d) {
			return true
		}
	}
	return false
}

// replace replaces the object that begins at an offset of dst with its projection. It leaves any
// other value unchanged.
func (p *projection) replace(dst []byte, from int) []byte {
	if !p.affects(dst[from:]) {
		return dst
	}
	end := len(dst)
	dst = p.appendObject(dst, dst[from:end]) // behind the object, which is its source
	return append(dst[:from], dst[end:]...)
}

// apply returns the projection of an object in new memory. Any other value is returned unchanged.
func (p *projection) apply(obj []byte) []byte {
	if p == nil || jsonscan.Kind(obj) != '{' {
		return obj
	}
	return p.appendObject(make([]byte, 0, len(obj)), obj)
}

// appendValue appends the projection of an object, or of the objects in an array.
func (p *projection) appendValue(dst, value []byte) []byte {
	switch jsonscan.Kind(value) {
	case '{':
		return p.appendObject(dst, value)
	case '[':
		dst = append(dst, '[')
		for element := range jsonscan.Elements(value) {
			if jsonscan.Kind(element) == '{' {
				dst = p.appendObject(dst, element)
			} else {
				dst = append(dst, element...)
			}
			dst = append(dst, ',')
		}
		return closeWith(dst, ']')
	}
	return append(dst, value...)
}

func (p *projection) appendObject(dst, obj []byte) []byte {
	if v := p.variant(obj); v != nil {
		return v.as(dst, obj)
	}
	start := len(dst)
	var lost *projectedField
	var lostValue []byte
	dst = append(dst, '{')
	for key, value := range jsonscan.Members(obj) {
		f := p.find(key)
		if f == nil {
			dst = append(appendMember(dst, key, value), ',')
			continue
		}
		before := len(dst)
		if dst = f.append(dst, value); len(dst) > before {
			dst = append(dst, ',')
		} else if f.instead != nil {
			lost, lostValue = f, value
		}
	}
	dst = closeWith(dst, '}')
	if lost != nil {
		dst = lost.instead(dst, start, lostValue)
	}
	return dst
}

// append appends the projected member, without a comma, unless it is removed.
func (f *projectedField) append(dst, value []byte) []byte {
	switch {
	case f.as != nil:
		return f.as(dst, f.key, value)
	case f.nested == nil:
		return dst
	}
	before := len(dst)
	dst = appendMember(dst, []byte(f.key), nil)
	from := len(dst)
	if f.byName && jsonscan.Kind(value) == '{' {
		dst = appendMembers(dst, value, f.nested.appendValue)
	} else {
		dst = f.nested.appendValue(dst, value)
	}
	if f.omitEmpty && string(dst[from:]) == "{}" {
		return dst[:before]
	}
	return dst
}

func (p *projection) variant(obj []byte) *variant {
	if len(p.variants) == 0 {
		return nil
	}
	typ, _ := jsonscan.Get(obj, "type")
	return p.variantOf(typ)
}

// variantOf returns the variant of objects with the given "type", or nil.
func (p *projection) variantOf(typ []byte) *variant {
	for i := range p.variants {
		if jsonscan.IsString(typ, p.variants[i].typ) {
			return &p.variants[i]
		}
	}
	return nil
}

// objects returns an iterator over value if it is an object, or over the objects in it if it is an
// array.
func objects(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		switch jsonscan.Kind(value) {
		case '{':
			yield(value)
		case '[':
			for element := range jsonscan.Elements(value) {
				if jsonscan.Kind(element) == '{' && !yield(element) {
					return
				}
			}
		}
	}
}

// appendMembers appends obj with each value rewritten.
func appendMembers(dst, obj []byte, rewritten func(dst, value []byte) []byte) []byte {
	dst = append(dst, '{')
	for key, value := range jsonscan.Members(obj) {
		dst = appendMember(dst, key, nil)
		dst = append(rewritten(dst, value), ',')
	}
	return closeWith(dst, '}')
}

// appendOthers appends the members of obj whose key is not in without, each followed by a comma.
func appendOthers(dst, obj []byte, without ...string) []byte {
	for key, value := range jsonscan.Members(obj) {
		if !isOneOf(key, without) {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return dst
}

// isOneOf reports whether names contains key. It does not allocate.
func isOneOf(key []byte, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return name == string(key) })
}

func appendMember(dst, key, value []byte) []byte {
	return append(append(appendKey(dst, key), ':'), value...)
}

// appendKey quotes a key, without conversion to a string if it needs no escapes.
func appendKey(dst, key []byte) []byte {
	for _, c := range key {
		if c < ' ' || c == '"' || c == '\\' || c > '~' {
			return jsonscan.AppendQuote(dst, string(key))
		}
	}
	return append(append(append(dst, '"'), key...), '"')
}

// closeWith ends an object or array each of whose elements is followed by a comma.
func closeWith(dst []byte, bracket byte) []byte {
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, bracket)
}
