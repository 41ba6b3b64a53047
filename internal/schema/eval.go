package schema

import "bytes"

const (
	// maxFrames limits the depth of an evaluation: 64 levels of JSON, each with references and
	// compositions.
	maxFrames = 2_000

	// bytesPerStep is the number of bytes that are read for a step.
	bytesPerStep = 64

	// bytesPerKey is the number of bytes that are converted to canonical form for a step.
	bytesPerKey = 8
)

// An evaluation validates a value against a schema. It reads the bytes in place, and allocates only
// if the schema contains keywords that need memory (unevaluated members, unique items) or the value
// is invalid.
//
// Methods that take an offset return the end of the value there and report whether it is valid. The
// end of an invalid value is how far it was read, because reading counts against the budget.
type evaluation struct {
	doc       []byte
	steps     int // remaining budget
	frames    int
	dynamic   bool
	scope     []*resource // the resources being evaluated; only if dynamic
	reporting bool        // collect problems and continue
	problems  []Problem
	listed    *objectRules // whose properties the last problem lists
	scratch   [40]byte     // for the digits of numbers and canonical forms
}

// spend takes steps from the budget. When the budget is used up every value is invalid, which ends
// the evaluation.
func (e *evaluation) spend(n int) bool {
	e.steps -= n
	return e.steps >= 0
}

// afford takes steps from the budget and reports whether it covered them.
func (e *evaluation) afford(n int) bool {
	if n > e.steps {
		n = e.steps + 1
	}
	return e.spend(n)
}

func (e *evaluation) spent() bool { return e.steps < 0 }

// value validates the value at an offset. The evaluated members or items are added to seen, which
// may be nil.
func (e *evaluation) value(n *node, at int, seen *marks) (end int, ok bool) {
	if at >= len(e.doc) || !e.spend(1) {
		return at, false
	}
	if n.never {
		e.report(at, "is not allowed here")
		return at, false
	}
	if e.frames == maxFrames {
		e.afford(e.steps + 1)
		return at, false
	}
	e.frames++
	if n.compound == nil && !e.dynamic && !n.collects() {
		end, ok = e.evalDirect(n, at, seen)
	} else {
		end, ok = e.evalWithCompound(n, at, seen)
	}
	e.frames--
	return end, e.spend((end-at)/bytesPerStep) && ok
}

// evalWithCompound validates a value against all keywords. Only schemas with compound keywords need
// its stack frame.
func (e *evaluation) evalWithCompound(n *node, at int, seen *marks) (end int, ok bool) {
	if e.dynamic {
		e.scope = append(e.scope, n.home)
	}
	own := seen
	if n.collects() {
		own = &marks{}
	}
	end, ok = e.evalDirect(n, at, own)
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

// evalDirect validates a value against all keywords except keywords that apply other schemas to the
// same value.
func (e *evaluation) evalDirect(n *node, at int, seen *marks) (end int, ok bool) {
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
			return at, false // not JSON
		}
		if n.types&(typeNumber|typeInteger) == typeInteger && e.isInteger(at, end) {
			typ = typeInteger
		}
	}
	if n.types != 0 && n.types&typ == 0 {
		e.reportType(n, at)
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
		e.reportGot(at, "a number of at least ", r.minimum.text)
	case r.maximum != nil && d.compare(r.maximum.decimal) > 0:
		e.reportGot(at, "a number of at most ", r.maximum.text)
	case r.above != nil && d.compare(r.above.decimal) <= 0:
		e.reportGot(at, "a number above ", r.above.text)
	case r.below != nil && d.compare(r.below.decimal) >= 0:
		e.reportGot(at, "a number below ", r.below.text)
	case r.multipleOf.digits != 0 && !r.multipleOf.divides(d):
		e.reportGot(at, "a multiple of ", r.multipleOf.text)
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
			e.reportCount(at, n, r.min, "at least", "character")
			return false
		case n > r.max:
			e.reportCount(at, n, r.max, "at most", "character")
			return false
		}
	}
	if r.pattern != nil && !e.matches(r.pattern, token) {
		e.reportGot(at, "a string that matches the regular expression ", r.pattern.String())
		return false
	}
	return true
}

// matches applies a pattern to a string token. Its cost is proportional to both, as the time of RE2
// is.
func (e *evaluation) matches(p *pattern, token []byte) bool {
	const perStep = 16
	return e.afford(1+p.cost*len(token)/perStep) && p.Match(unquote(token))
}

func (e *evaluation) enumerated(n *node, at, end int) bool {
	raw := e.doc[at:end]
	if _, ok := n.enum.canonical[string(raw)]; ok {
		return true
	}
	// A string without escapes is canonical.
	if (raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0) && e.afford(len(raw)/bytesPerKey) {
		if _, ok := n.enum.canonical[string(appendCanonical(e.scratch[:0], raw))]; ok {
			return true
		}
	}
	e.reportEnum(n, at)
	return false
}

// next returns the start of the text after the value that ends at i in its container: the next
// value or the bracket.
func next(doc []byte, i int) int {
	i = skipSpace(doc, i)
	if i < len(doc) && doc[i] == ',' {
		i = skipSpace(doc, i+1)
	}
	return i
}
