package argument

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

const (
	// maxSteps bounds the depth of a nested argument. Messages nest to 64 levels.
	maxSteps = 32
	// maxIndex bounds the index of an element. Longer arrays are better given as JSON.
	maxIndex = 9999
)

// newElement is the index of an element that is added to an array.
const newElement = -1

// A Step leads from a value into one of its members or elements.
type Step struct {
	key     string // of a member
	element bool
	index   int // of an element, or newElement
}

// pathOf returns steps as they are typed.
func pathOf(steps []Step) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case s.element && s.index == newElement:
			b.WriteString("[]")
		case s.element:
			fmt.Fprintf(&b, "[%d]", s.index)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(pathMarks.Replace(s.key))
		}
	}
	return b.String()
}

var pathMarks = strings.NewReplacer(`\`, `\\`, ".", `\.`, "[", `\[`)

// locate returns the steps of a key such as items[0].name, and the parameter to which they lead.
func (a *List) locate(key string) ([]Step, *Parameter, error) {
	if !a.Nested || slices.Contains(a.names(), key) {
		return []Step{{key: key}}, a.parameter(key), nil
	}
	a.Reader = NewReader(a.Root)
	name, rest, err := cutMember(key, a.names())
	if err != nil {
		return nil, nil, err
	}
	steps, at := []Step{{key: name}}, *a.parameter(name)
	for rest != "" {
		if len(steps) == maxSteps {
			return nil, nil, fmt.Errorf("more than %d levels: give the value as JSON, with :=", maxSteps)
		}
		if rest[0] == '[' {
			at, rest, err = a.intoElement(&steps, at, rest)
		} else {
			at, rest, err = a.intoMember(&steps, at, rest[1:])
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return steps, &at, nil
}

// cutMember cuts the name of a member from the beginning of a path. Declared names may contain dots
// and brackets; in other names a backslash must precede them.
func cutMember(path string, declared []string) (name, rest string, err error) {
	best := -1
	for _, d := range declared {
		after, ok := strings.CutPrefix(path, d)
		if ok && len(d) > best && d != "" && (after == "" || after[0] == '.' || after[0] == '[') {
			best = len(d)
		}
	}
	if best > 0 {
		return path[:best], path[best:], nil
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+1 < len(path) && strings.IndexByte(`.[\`, path[i+1]) >= 0 {
			i++
		} else if path[i] == '.' || path[i] == '[' {
			rest = path[i:]
			break
		}
		b.WriteByte(path[i])
	}
	if b.Len() == 0 {
		return "", "", fmt.Errorf(`empty name before %.60q: write \. and \[ for dots and brackets in names`, path)
	}
	return b.String(), rest, nil
}

func (a *List) intoMember(steps *[]Step, at Parameter, path string) (Parameter, string, error) {
	declared := a.Reader.memberNames(at.schema)
	name, rest, err := cutMember(path, declared)
	if err != nil {
		return at, "", err
	}
	here := term.CleanLine(pathOf(*steps))
	*steps = append(*steps, Step{key: name})
	member, known, open := a.Reader.member(at.schema, name)
	if !known && len(at.types) > 0 && !at.takes("object") {
		return at, "", fmt.Errorf("%s takes no members: want %s", here, term.CleanLine(at.want()))
	}
	if !known && !slices.Contains(declared, name) {
		unknown := term.UnknownName("member", name, declared)
		if !open {
			return at, "", fmt.Errorf("%s: %w", here, unknown)
		}
		if like := jsonschema.Nearest(name, declared); like != "" {
			a.Warnings = append(a.Warnings, fmt.Sprintf("%s: %v", here, unknown))
		}
	}
	return a.Reader.parameter(name, member), rest, nil
}

func (a *List) intoElement(steps *[]Step, at Parameter, path string) (Parameter, string, error) {
	digits, rest, ok := strings.Cut(path[1:], "]")
	index := newElement
	if ok && digits != "" {
		n, err := strconv.ParseUint(digits, 10, 31)
		index, ok = int(min(n, maxIndex+1)), err == nil || errors.Is(err, strconv.ErrRange)
	}
	here := term.CleanLine(pathOf(*steps))
	switch {
	case !ok || rest != "" && rest[0] != '.' && rest[0] != '[':
		return at, "", fmt.Errorf("invalid index %.60q: want [0] for an element, or [] for a new one", path)
	case index > maxIndex:
		return at, "", fmt.Errorf("invalid index %s: want at most %d", digits, maxIndex)
	case len(at.types) > 0 && !at.takes("array"):
		return at, "", fmt.Errorf("%s takes no elements: want %s", here, term.CleanLine(at.want()))
	}
	*steps = append(*steps, Step{element: true, index: index})
	return a.Reader.parameter("", a.Reader.element(at.schema, index)), rest, nil
}

// place sets the value at the end of steps, whose indexes must be fixed.
func (a *List) place(steps []Step, value stdjson.RawMessage) error {
	top := steps[0].key
	whole, err := assign(a.Values[top], steps[1:], value)
	if err == nil {
		a.Put(top, whole)
	}
	return err
}

// fixed returns steps with the indexes that new elements will get.
func (a *List) fixed(steps []Step) []Step {
	steps = slices.Clone(steps)
	at := a.Values[steps[0].key]
	for i := range steps[1:] {
		s := &steps[1+i]
		if !s.element {
			at, _ = rawjson.Get(at, s.key)
			continue
		}
		all := slices.Collect(rawjson.Elements(at))
		if s.index == newElement {
			s.index = len(all)
		}
		if at = nil; s.index < len(all) {
			at = all[s.index]
		}
	}
	return steps
}

// assign returns a JSON value in which the value at the end of steps is replaced or added. raw is
// nil if there is no value yet.
func assign(raw []byte, steps []Step, value []byte) ([]byte, error) {
	if len(steps) == 0 {
		return value, nil
	}
	s, kind := steps[0], rawjson.Kind(raw)
	if !s.element {
		if kind != 0 && kind != '{' {
			return nil, fmt.Errorf("%.60q, given before, has no members", raw)
		}
		inner, _ := rawjson.Get(raw, s.key)
		inner, err := assign(inner, steps[1:], value)
		return rawjson.Set(raw, s.key, inner), err
	}
	if kind != 0 && kind != '[' {
		return nil, fmt.Errorf("%.60q, given before, has no elements", raw)
	}
	all := slices.Collect(rawjson.Elements(raw))
	if s.index > len(all) {
		return nil, fmt.Errorf("invalid index %d: want at most %d, since %d elements are given before", s.index,
			len(all), len(all))
	}
	if s.index == len(all) {
		all = append(all, nil)
	}
	inner, err := assign(all[s.index], steps[1:], value)
	all[s.index] = inner
	return ListOf(all), err
}

// memberNames returns the names that an object schema declares, also in alternatives.
func (r *SchemaReader) memberNames(object []byte) (all []string) {
	properties, _ := rawjson.Get(object, "properties")
	for name := range rawjson.Members(properties) {
		all = append(all, string(name))
	}
	for branch := range r.Branches(object, compounds...) {
		all = append(all, r.memberNames(branch)...)
	}
	return all
}

// member returns the schema of a member of an object. known reports whether the object's schema
// specifies the member, open whether the schema allows members that it does not specify.
func (r *SchemaReader) member(object []byte, name string) (found []byte, known, open bool) {
	properties, _ := rawjson.Get(object, "properties")
	if found, known = rawjson.Get(properties, name); known {
		return found, true, true
	}
	for branch := range r.Branches(object, compounds...) {
		if found, known, _ = r.member(branch, name); known {
			return found, true, true
		}
	}
	additional, has := rawjson.Get(object, "additionalProperties")
	_, patterns := rawjson.Get(object, "patternProperties")
	if has && rawjson.Kind(additional) == '{' {
		return additional, true, true
	}
	return nil, false, !has || patterns || rawjson.Kind(additional) != 'f'
}

// element returns the schema of an element of an array, or nil.
func (r *SchemaReader) element(array []byte, index int) []byte {
	prefix, _ := rawjson.Get(array, "prefixItems")
	if all := slices.Collect(rawjson.Elements(prefix)); index >= 0 && index < len(all) {
		return all[index]
	}
	if items, ok := rawjson.Get(array, "items"); ok && rawjson.Kind(items) != '[' {
		return items
	}
	for branch := range r.Branches(array, compounds...) {
		if found := r.element(branch, index); found != nil {
			return found
		}
	}
	return nil
}

// compounds are the keywords whose subschemas are about the same value.
var compounds = []string{"allOf", "oneOf", "anyOf"}
