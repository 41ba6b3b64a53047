package schema

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
			if !e.reporting {
				return end, false
			}
			ok, end = false, skipValue(e.doc, i)
		}
		if r.contains != nil && e.accepts(r.contains, i, nil) {
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
		e.reportCount(at, count, r.min, "at least", "item")
	case count > r.max:
		e.reportCount(at, count, r.max, "at most", "item")
	case r.contains != nil && contained < r.minContains:
		e.reportCount(at, contained, r.minContains, "at least", "item of the kind that it should contain")
	case r.contains != nil && contained > r.maxContains:
		e.reportCount(at, contained, r.maxContains, "at most", "item of the kind that it should contain")
	case r.unique && !e.unique(at, end, count):
	default:
		return end, ok
	}
	return end, false
}

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
			e.report(i, "duplicate item, want all items different")
			return false
		}
		seen[string(key)] = struct{}{}
		i = next(e.doc, end)
	}
	return true
}
