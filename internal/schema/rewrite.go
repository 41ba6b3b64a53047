package schema

import "bytes"

// ApplyDefaults returns a value with absent properties set to their defaults, in the value itself
// and in its properties and items. It returns the same bytes if no member is added, and never
// changes them. The syntax of the value must be valid.
func (s *Schema) ApplyDefaults(instance []byte) []byte {
	if !s.defaults {
		return instance
	}
	return fillDefaults.value(s.root, instance)
}

// DropNulls returns a value without the optional properties that are null although the schema does
// not allow null: Go encodes nil pointers so, and many models absent arguments. It returns the same
// bytes if no member is dropped, and never changes them.
func (s *Schema) DropNulls(instance []byte) []byte {
	if !bytes.Contains(instance, []byte("null")) {
		return instance
	}
	return dropNulls.value(s.root, instance)
}

// A rewriting is a change of a value and of its properties and items.
type rewriting uint8

const (
	fillDefaults rewriting = iota
	dropNulls
)

func (w rewriting) value(n *node, raw []byte) []byte {
	n = n.target()
	start := skipSpace(raw, 0)
	if start < len(raw) && (raw[start] == '{' && n.object != nil || raw[start] == '[' && n.array != nil) {
		return w.container(n, raw, start)
	}
	return raw
}

// container rewrites an object or an array. It is copied at the first change.
func (w rewriting) container(n *node, raw []byte, start int) []byte {
	var out []byte
	var present marks
	i := skipSpace(raw, start+1)
	for count := 0; i < len(raw) && raw[i] != '}' && raw[i] != ']'; count++ {
		valueAt := i
		var part *node
		var named *property
		if raw[start] == '{' {
			var nameEnd int
			nameEnd, valueAt = member(raw, i)
			if named = n.object.find(raw[i:nameEnd], count); named != nil {
				present.set(named.place)
			}
			part = n.object.part(named)
		} else {
			part = n.array.part(count)
		}
		end := skipValue(raw, valueAt)
		old := raw[valueAt:end]
		value, drop := old, false
		if part != nil {
			drop = w == dropNulls && named != nil && !named.required && string(old) == "null" && !part.takesNull()
			value = w.value(part, old)
		}
		if changed := drop || len(value) != len(old) || len(old) > 0 && &value[0] != &old[0]; changed && out == nil {
			out = append(make([]byte, 0, len(raw)+64), raw[:i]...)
		}
		if out != nil && !drop {
			out = append(append(another(out), raw[i:valueAt]...), value...)
		}
		i = next(raw, end)
	}
	if w == fillDefaults && raw[start] == '{' {
		out = n.object.appendAbsent(out, raw[:i], &present)
	}
	if out == nil {
		return raw
	}
	return append(bytes.TrimRight(out, " \t\r\n,"), raw[i:]...)
}

// appendAbsent appends the defaults of absent properties. out is nil if text did not change.
func (r *objectRules) appendAbsent(out, text []byte, present *marks) []byte {
	for _, p := range r.properties {
		if p.node == nil || p.node.fallback == nil || present.has(p.place) {
			continue
		}
		if out == nil {
			out = append(make([]byte, 0, len(text)+64), text...)
		}
		out = append(append(append(another(out), quote(p.name)...), ':'), p.node.fallback...)
	}
	return out
}

// another appends a comma unless the open container is empty.
func another(out []byte) []byte {
	out = bytes.TrimRight(out, " \t\r\n,")
	if last := out[len(out)-1]; last == '{' || last == '[' {
		return out
	}
	return append(out, ',')
}

func (r *objectRules) part(p *property) *node {
	if p != nil && p.node != nil {
		return p.node
	}
	return r.additional
}

func (r *arrayRules) part(index int) *node {
	if index < len(r.prefix) {
		return r.prefix[index]
	}
	return r.items
}

func (n *node) takesNull() bool {
	e := evaluation{doc: []byte("null"), steps: MaxSteps}
	_, ok := e.value(n, 0, nil)
	return ok
}
