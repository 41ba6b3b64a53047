package schema

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
			if !e.reporting {
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
		e.reportRequired(n, at)
		ok = false
	}
	if count < r.min {
		e.reportCount(at, count, r.min, "at least", "property")
		ok = false
	}
	if count > r.max {
		e.reportCount(at, count, r.max, "at most", "property")
		ok = false
	}
	for i := 0; i < len(r.dependent) && (ok || e.reporting); i++ {
		ok = e.dependency(&r.dependent[i], at, seen) && ok
	}
	return min(i+1, len(e.doc)), ok
}

// member validates a member against all schemas for it; evaluated reports whether there were any.
func (e *evaluation) member(r *objectRules, p *property, at, nameEnd, valueAt int) (end int, evaluated, ok bool) {
	ok = true
	if p != nil && p.node != nil {
		end, ok = e.value(p.node, valueAt, nil)
		evaluated = true
	}
	for i := 0; i < len(r.patterns) && (ok || e.reporting); i++ {
		if !e.matches(r.patterns[i].pattern, e.doc[at:nameEnd]) {
			continue
		}
		var fits bool
		end, fits = e.value(r.patterns[i].node, valueAt, nil)
		ok, evaluated = ok && fits, true
	}
	if !evaluated && r.additional != nil {
		if r.additional.never {
			e.reportUnknown(r, at, nameEnd)
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

// dependency validates an object against the rules that the presence of a member adds.
func (e *evaluation) dependency(d *dependency, at int, seen *marks) bool {
	if !e.has(at, d.name) {
		return !e.spent()
	}
	ok := true
	for _, name := range d.required {
		if !e.has(at, name) {
			e.report(at, "missing property "+string(quote(name))+", required by "+string(quote(d.name)))
			ok = false
		}
	}
	if d.node != nil {
		_, fits := e.value(d.node, at, seen)
		ok = ok && fits
	}
	return ok
}

// find returns the offset of a member's value in the object at an offset.
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

// member returns the end of the name that starts at i and the start of its value.
func member(doc []byte, i int) (nameEnd, valueAt int) {
	nameEnd = skipString(doc, i)
	return nameEnd, skipSpace(doc, skipSpace(doc, nameEnd)+1)
}
