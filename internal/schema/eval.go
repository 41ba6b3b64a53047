package schema

import "bytes"

const (
	// maxFrames bounds how deep an evaluation goes: 64 levels of JSON, each with its references and compositions.
	maxFrames = 2_000

	// bytesPerStep is how much text is read for one step.
	bytesPerStep = 64

	// bytesPerKey is how much text is brought into canonical form for one step.
	bytesPerKey = 8
)

// An evaluation holds one value against a schema. It reads the bytes in place, and allocates nothing unless the schema
// has keywords that need memory (unevaluated members, unique items) or the value is at fault.
//
// Methods that take an offset tell whether the value there fits, and its end. For a value that does not fit the end is
// how far it was read: everything read is paid for.
type evaluation struct {
	doc      []byte
	steps    int // left
	frames   int
	dynamic  bool
	scope    []*resource // entered and not left; kept only while dynamic
	telling  bool        // problems are collected and do not end the work
	problems []Problem
	listed   *objectRules // whose properties were told last
	scratch  [40]byte     // for the digits of numbers and canonical forms
}

// spend takes steps from the budget. When it is used up nothing fits any more, and the work ends soon.
func (e *evaluation) spend(n int) bool {
	e.steps -= n
	return e.steps >= 0
}

// afford takes steps before the work, which is not begun unless the budget covers it.
func (e *evaluation) afford(n int) bool {
	if n > e.steps {
		n = e.steps + 1
	}
	return e.spend(n)
}

func (e *evaluation) spent() bool { return e.steps < 0 }

// value holds the value at an offset against a schema. The members or items that it evaluated are added to seen,
// unless that is nil.
func (e *evaluation) value(n *node, at int, seen *marks) (end int, ok bool) {
	if at >= len(e.doc) || !e.spend(1) {
		return at, false
	}
	if n.never {
		e.tell(at, "is not allowed here")
		return at, false
	}
	if e.frames == maxFrames {
		e.afford(e.steps + 1)
		return at, false
	}
	e.frames++
	if n.compound == nil && !e.dynamic && !n.collects() {
		end, ok = e.own(n, at, seen)
	} else {
		end, ok = e.whole(n, at, seen)
	}
	e.frames--
	return end, e.spend((end-at)/bytesPerStep) && ok
}

// whole is value for a schema that does not end with its own keywords. Few are, and the others do without its frame.
func (e *evaluation) whole(n *node, at int, seen *marks) (end int, ok bool) {
	if e.dynamic {
		e.scope = append(e.scope, n.home)
	}
	own := seen
	if n.collects() {
		own = &marks{}
	}
	end, ok = e.own(n, at, own)
	if ok && n.compound != nil {
		ok = e.compound(n.compound, at, own)
	}
	if ok && own != seen {
		ok = e.unevaluated(n, at, own)
		seen.add(own)
	}
	if e.dynamic {
		e.scope = e.scope[:len(e.scope)-1]
	}
	return end, ok
}

// own holds a value against all keywords but those that hold other schemas against it.
func (e *evaluation) own(n *node, at int, seen *marks) (end int, ok bool) {
	var typ typeSet
	switch e.doc[at] {
	case '{':
		typ = typeObject
	case '[':
		typ = typeArray
	case '"':
		typ, end = typeString, skipString(e.doc, at)
	case 't', 'f':
		typ, end = typeBoolean, skipScalar(e.doc, at)
	case 'n':
		typ, end = typeNull, skipScalar(e.doc, at)
	default:
		typ, end = typeNumber, skipScalar(e.doc, at)
		if end == at {
			return at, false // no JSON at all
		}
		if n.types&(typeNumber|typeInteger) == typeInteger && e.isInteger(at, end) {
			typ = typeInteger
		}
	}
	if n.types != 0 && n.types&typ == 0 {
		e.tellType(n, at)
		return max(at, end), false
	}
	ok = true
	switch typ {
	case typeObject:
		if n.object == nil {
			end = skipValue(e.doc, at)
		} else {
			end, ok = e.object(n, at, seen)
		}
	case typeArray:
		if n.array == nil {
			end = skipValue(e.doc, at)
		} else {
			end, ok = e.array(n, at, seen)
		}
	case typeString:
		ok = n.text == nil || e.text(n.text, at, end)
	case typeNumber, typeInteger:
		ok = n.number == nil || e.number(n.number, at, end)
	}
	if ok && n.enum != nil {
		ok = e.enumerated(n, at, end)
	}
	return end, ok
}

func (e *evaluation) isInteger(at, end int) bool {
	raw := e.doc[at:end]
	if _, ok := smallInteger(raw); ok {
		return true
	}
	return parseDecimal(e.scratch[:0], raw).isInteger()
}

func (e *evaluation) number(r *numberRules, at, end int) bool {
	raw := e.doc[at:end]
	if v, ok := smallInteger(raw); ok && r.plain && r.low <= v && v <= r.high {
		return true
	}
	d := parseDecimal(e.scratch[:0], raw)
	switch {
	case r.minimum != nil && d.compare(r.minimum.decimal) < 0:
		e.tellGot(at, "a number of at least ", r.minimum.text)
	case r.maximum != nil && d.compare(r.maximum.decimal) > 0:
		e.tellGot(at, "a number of at most ", r.maximum.text)
	case r.above != nil && d.compare(r.above.decimal) <= 0:
		e.tellGot(at, "a number above ", r.above.text)
	case r.below != nil && d.compare(r.below.decimal) >= 0:
		e.tellGot(at, "a number below ", r.below.text)
	case r.multipleOf.digits != 0 && !r.multipleOf.divides(d):
		e.tellGot(at, "a multiple of ", r.multipleOf.text)
	default:
		return true
	}
	return false
}

func (e *evaluation) text(r *textRules, at, end int) bool {
	token := e.doc[at:end]
	if size := len(token) - 2; size > r.max || r.min > 0 { // a character takes at least a byte
		switch n := runes(token); {
		case n < r.min:
			e.tellCount(at, n, r.min, "at least", "character")
			return false
		case n > r.max:
			e.tellCount(at, n, r.max, "at most", "character")
			return false
		}
	}
	if r.pattern != nil && !e.matches(r.pattern, token) {
		e.tellGot(at, "a string that matches the regular expression ", r.pattern.String())
		return false
	}
	return true
}

// matches applies a pattern to a string token. RE2 takes time in proportion to both, and so does the price.
func (e *evaluation) matches(p *pattern, token []byte) bool {
	const perStep = 16
	return e.afford(1+p.cost*len(token)/perStep) && p.Match(unquote(token))
}

func (e *evaluation) enumerated(n *node, at, end int) bool {
	raw := e.doc[at:end]
	if _, ok := n.enum.canonical[string(raw)]; ok {
		return true
	}
	// A string without escapes is canonical as it stands.
	if (raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0) && e.afford(len(raw)/bytesPerKey) {
		if _, ok := n.enum.canonical[string(appendCanonical(e.scratch[:0], raw))]; ok {
			return true
		}
	}
	e.tellEnum(n, at)
	return false
}

// object holds the members of an object against the keywords for objects.
func (e *evaluation) object(n *node, at int, seen *marks) (end int, ok bool) {
	r, required, count := n.object, 0, 0
	ok = true
	i := skipSpace(e.doc, at+1)
	for ; i < len(e.doc) && e.doc[i] == '"'; count++ {
		nameEnd, valueAt := member(e.doc, i)
		p := r.find(e.doc[i:nameEnd], count)
		if p != nil && p.required {
			required++
		}
		var evaluated, fits bool
		if p != nil && p.node != nil && r.isPlain() {
			end, fits = e.value(p.node, valueAt, nil)
			end, evaluated = max(end, valueAt), true
		} else {
			end, evaluated, fits = e.member(r, p, i, nameEnd, valueAt)
		}
		if !fits {
			if !e.telling {
				return end, false
			}
			ok, end = false, skipValue(e.doc, valueAt)
		}
		if evaluated {
			seen.set(count)
		}
		i = next(e.doc, end)
	}
	if required < r.required {
		e.tellRequired(n, at)
		ok = false
	}
	if count < r.min {
		e.tellCount(at, count, r.min, "at least", "property")
		ok = false
	}
	if count > r.max {
		e.tellCount(at, count, r.max, "at most", "property")
		ok = false
	}
	for i := 0; i < len(r.dependent) && (ok || e.telling); i++ {
		ok = e.dependency(&r.dependent[i], at, seen) && ok
	}
	return min(i+1, len(e.doc)), ok
}

// member holds one member against all schemas for it; evaluated tells whether there were any.
func (e *evaluation) member(r *objectRules, p *property, at, nameEnd, valueAt int) (end int, evaluated, ok bool) {
	ok = true
	if p != nil && p.node != nil {
		end, ok = e.value(p.node, valueAt, nil)
		evaluated = true
	}
	for i := 0; i < len(r.patterns) && (ok || e.telling); i++ {
		if !e.matches(r.patterns[i].pattern, e.doc[at:nameEnd]) {
			continue
		}
		var fits bool
		end, fits = e.value(r.patterns[i].node, valueAt, nil)
		ok, evaluated = ok && fits, true
	}
	if !evaluated && r.additional != nil {
		if r.additional.never {
			e.tellUnknown(r, at, nameEnd)
			return valueAt, false, false
		}
		end, ok = e.value(r.additional, valueAt, nil)
		evaluated = true
	}
	if ok && r.names != nil {
		_, ok = e.value(r.names, at, nil)
	}
	if ok && !evaluated {
		end = skipValue(e.doc, valueAt)
	}
	return max(end, valueAt), evaluated, ok
}

// dependency holds an object against what the presence of a member asks of it.
func (e *evaluation) dependency(d *dependency, at int, seen *marks) bool {
	if !e.has(at, d.name) {
		return !e.spent()
	}
	ok := true
	for _, name := range d.required {
		if !e.has(at, name) {
			e.tell(at, "missing property "+string(quote(name))+", which "+string(quote(d.name))+" needs beside it")
			ok = false
		}
	}
	if d.node != nil {
		_, fits := e.value(d.node, at, seen)
		ok = ok && fits
	}
	return ok
}

// find returns the place of a member's value in the object at an offset.
func (e *evaluation) find(at int, name string) (valueAt int, present bool) {
	for i := skipSpace(e.doc, at+1); i < len(e.doc) && e.doc[i] == '"'; {
		nameEnd, valueAt := member(e.doc, i)
		if string(unquote(e.doc[i:nameEnd])) == name {
			return valueAt, true
		}
		end := skipValue(e.doc, valueAt)
		if !e.spend(1 + (end-i)/bytesPerStep) {
			return 0, false
		}
		i = next(e.doc, end)
	}
	return 0, false
}

func (e *evaluation) has(at int, name string) bool {
	_, present := e.find(at, name)
	return present
}

// array holds the items of an array against the keywords for arrays.
func (e *evaluation) array(n *node, at int, seen *marks) (end int, ok bool) {
	r, contained, count := n.array, 0, 0
	ok = true
	i := skipSpace(e.doc, at+1)
	for ; i < len(e.doc) && e.doc[i] != ']'; count++ {
		fits := true
		if item := r.part(count); item == nil {
			end = skipValue(e.doc, i)
		} else {
			end, fits = e.value(item, i, nil)
			seen.set(count)
		}
		if !fits {
			if !e.telling {
				return end, false
			}
			ok, end = false, skipValue(e.doc, i)
		}
		if r.contains != nil && e.quietly(r.contains, i, nil) {
			contained++
			seen.set(count)
		}
		if e.spent() {
			return end, false
		}
		i = next(e.doc, end)
	}
	end = min(i+1, len(e.doc))
	switch {
	case count < r.min:
		e.tellCount(at, count, r.min, "at least", "item")
	case count > r.max:
		e.tellCount(at, count, r.max, "at most", "item")
	case r.contains != nil && contained < r.minContains:
		e.tellCount(at, contained, r.minContains, "at least", "item of the kind that it should contain")
	case r.contains != nil && contained > r.maxContains:
		e.tellCount(at, contained, r.maxContains, "at most", "item of the kind that it should contain")
	case r.unique && !e.unique(at, end, count):
	default:
		return end, ok
	}
	return end, false
}

// unique reports whether the items of an array all differ.
func (e *evaluation) unique(at, end, count int) bool {
	if count < 2 {
		return true
	}
	if !e.afford(count + (end-at)/bytesPerKey) {
		return false
	}
	seen := make(map[string]struct{}, count)
	for i := skipSpace(e.doc, at+1); i < len(e.doc) && e.doc[i] != ']'; {
		end := skipValue(e.doc, i)
		key := appendCanonical(e.scratch[:0], e.doc[i:end])
		if _, twice := seen[string(key)]; twice {
			e.tell(i, "the item stands twice, want all items different")
			return false
		}
		seen[string(key)] = struct{}{}
		i = next(e.doc, end)
	}
	return true
}

// compound holds a value against the schemas that a schema applies to the same value.
func (e *evaluation) compound(r *compoundRules, at int, seen *marks) bool {
	ok := true
	for i := 0; i < len(r.refs) && (ok || e.telling); i++ {
		_, fits := e.value(e.outermost(&r.refs[i]), at, seen)
		ok = ok && fits
	}
	for i := 0; i < len(r.allOf) && (ok || e.telling); i++ {
		_, fits := e.value(r.allOf[i], at, seen)
		ok = ok && fits
	}
	if r.anyOf != nil && (ok || e.telling) {
		ok = e.choice(r.anyOf, at, seen, len(r.anyOf)) && ok
	}
	if r.oneOf != nil && (ok || e.telling) {
		ok = e.choice(r.oneOf, at, seen, 1) && ok
	}
	if r.not != nil && e.quietly(r.not, at, nil) {
		e.tellGot(at, "anything but what the schema excludes by not", "")
		ok = false
	}
	if r.when == nil || !ok && !e.telling {
		return ok
	}
	branch := r.otherwise
	if e.quietly(r.when, at, seen) {
		branch = r.then
	}
	if branch != nil {
		_, fits := e.value(branch, at, seen)
		ok = ok && fits
	}
	return ok
}

// choice holds a value against alternatives, of which at least one and at most so many fit.
func (e *evaluation) choice(branches []*node, at int, seen *marks, most int) bool {
	fitting := 0
	for _, branch := range branches {
		if e.quietly(branch, at, seen) {
			fitting++
		}
		if fitting > most || fitting == 1 && most > 1 && seen == nil {
			break
		}
	}
	if 0 < fitting && fitting <= most {
		return true
	}
	e.tellChoice(branches, at, fitting)
	return false
}

// quietly reports whether a value fits a schema whose failure is no problem in itself. Only a schema that fits adds to
// what was seen.
func (e *evaluation) quietly(n *node, at int, seen *marks) bool {
	telling := e.telling
	e.telling = false
	var own *marks
	if seen != nil {
		own = &marks{}
	}
	_, ok := e.value(n, at, own)
	e.telling = telling
	if ok {
		seen.add(own)
	}
	return ok
}

// outermost returns the schema that a reference means: for a dynamic one the anchor of its name in the outermost
// resource that has it.
func (e *evaluation) outermost(r *reference) *node {
	if r.dynamic != "" && e.spend(len(e.scope)/8) {
		for _, home := range e.scope {
			if n := home.dynamic[r.dynamic]; n != nil {
				return n
			}
		}
	}
	return r.target
}

// unevaluated holds what no other keyword evaluated against the schema for the rest.
func (e *evaluation) unevaluated(n *node, at int, own *marks) bool {
	ok := true
	object := e.doc[at] == '{'
	var rest *node
	switch {
	case object && n.object != nil:
		rest = n.object.unevaluated
	case e.doc[at] == '[' && n.array != nil:
		rest = n.array.unevaluated
	}
	if rest == nil {
		return true
	}
	index := 0
	for i := skipSpace(e.doc, at+1); i < len(e.doc) && e.doc[i] != '}' && e.doc[i] != ']'; index++ {
		start, nameEnd := i, i
		if object {
			nameEnd, i = member(e.doc, i)
		}
		if !own.has(index) {
			if object && rest.never {
				e.tellUnknown(n.object, start, nameEnd)
				ok = false
			} else if _, fits := e.value(rest, i, nil); !fits {
				ok = false
			}
			own.set(index)
		}
		if !ok && !e.telling {
			return false
		}
		i = next(e.doc, skipValue(e.doc, i))
	}
	return ok
}

// marks are the members of an object, or the items of an array, that some schema evaluated. A nil *marks takes none.
type marks struct {
	few  [2]uint64 // the bits of the first ones, so that most need no memory
	more []uint64
}

// word returns the bits among which one is.
func (m *marks) word(i int) *uint64 {
	w := i / 64
	if w < len(m.few) {
		return &m.few[w]
	}
	w -= len(m.few)
	for len(m.more) <= w {
		m.more = append(m.more, 0)
	}
	return &m.more[w]
}

func (m *marks) set(i int) {
	if m != nil {
		*m.word(i) |= 1 << (i % 64)
	}
}

func (m *marks) has(i int) bool { return *m.word(i)&(1<<(i%64)) != 0 }

func (m *marks) add(o *marks) {
	if m == nil || o == nil {
		return
	}
	for i, bits := range o.few {
		m.few[i] |= bits
	}
	for i, bits := range o.more {
		*m.word((len(m.few) + i) * 64) |= bits
	}
}

// member returns the end of the name that starts at i and the start of its value.
func member(doc []byte, i int) (nameEnd, valueAt int) {
	nameEnd = skipString(doc, i)
	return nameEnd, skipSpace(doc, skipSpace(doc, nameEnd)+1)
}

// next returns the start of what follows the value that ends at i in its container: the next one or the bracket.
func next(doc []byte, i int) int {
	i = skipSpace(doc, i)
	if i < len(doc) && doc[i] == ',' {
		i = skipSpace(doc, i+1)
	}
	return i
}
