package schema

// compound validates a value against the schemas that a schema applies to the same value.
func (e *evaluation) compound(r *compoundRules, at int, seen *marks) bool {
	ok := true
	for i := 0; i < len(r.refs) && (ok || e.reporting); i++ {
		_, fits := e.value(e.resolve(&r.refs[i]), at, seen)
		ok = ok && fits
	}
	for i := 0; i < len(r.allOf) && (ok || e.reporting); i++ {
		_, fits := e.value(r.allOf[i], at, seen)
		ok = ok && fits
	}
	if r.anyOf != nil && (ok || e.reporting) {
		ok = e.choice(r.anyOf, at, seen, len(r.anyOf)) && ok
	}
	if r.oneOf != nil && (ok || e.reporting) {
		ok = e.choice(r.oneOf, at, seen, 1) && ok
	}
	if r.not != nil && e.accepts(r.not, at, nil) {
		e.reportGot(at, "anything but what the schema excludes by not", "")
		ok = false
	}
	if r.when == nil || !ok && !e.reporting {
		return ok
	}
	branch := r.otherwise
	if e.accepts(r.when, at, seen) {
		branch = r.then
	}
	if branch != nil {
		_, fits := e.value(branch, at, seen)
		ok = ok && fits
	}
	return ok
}

// choice validates a value against alternatives, of which at least 1 and at most the given number
// must accept it.
func (e *evaluation) choice(branches []*node, at int, seen *marks, most int) bool {
	fitting := 0
	for _, branch := range branches {
		if e.accepts(branch, at, seen) {
			fitting++
		}
		if fitting > most || fitting == 1 && most > 1 && seen == nil {
			break
		}
	}
	if 0 < fitting && fitting <= most {
		return true
	}
	e.reportChoice(branches, at, fitting)
	return false
}

// accepts reports whether a schema accepts a value, without recording problems. Only then it adds
// to seen.
func (e *evaluation) accepts(n *node, at int, seen *marks) bool {
	reporting := e.reporting
	e.reporting = false
	var own *marks
	if seen != nil {
		own = &marks{}
	}
	_, ok := e.value(n, at, own)
	e.reporting = reporting
	if ok {
		seen.add(own)
	}
	return ok
}

// resolve returns the target of a reference. A dynamic reference refers to the anchor of its name
// in the outermost resource that contains it.
func (e *evaluation) resolve(r *resolvedReference) *node {
	if r.dynamic != "" && e.spend(len(e.scope)/8) {
		for _, home := range e.scope {
			if n := home.dynamic[r.dynamic]; n != nil {
				return n
			}
		}
	}
	return r.target
}

// unevaluated validates the members or items that no other keyword evaluated.
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
				e.reportUnknown(n.object, start, nameEnd)
				ok = false
			} else if _, fits := e.value(rest, i, nil); !fits {
				ok = false
			}
			own.set(index)
		}
		if !ok && !e.reporting {
			return false
		}
		i = next(e.doc, skipValue(e.doc, i))
	}
	return ok
}

// marks is the set of members of an object, or items of an array, that a schema evaluated. A
// nil *marks stays empty.
type marks struct {
	few  [2]uint64 // the first bits, so that most sets allocate no memory
	more []uint64
}

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
