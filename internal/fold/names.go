package fold

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxPlaces bounds the places of a schema that are told apart, and maxRead the bytes of it that are
	// read for that. Beyond, a name of any place counts at all of them.
	maxPlaces = 1000
	maxRead   = 16 << 20
)

// Names are the names that a JSON schema gives the members of an object, and of the values in it. The
// zero value names none. It is safe for concurrent use.
type Names struct {
	places map[string]*Names   // of the values of members, by name; nil for values without names
	keys   map[string]struct{} // of those names
	rest   *Names              // of other members
	first  []*Names            // of the first elements of an array
	items  *Names              // of the other elements
}

// Of returns the names in a schema. All subschemas that may apply to a value count, whether or not they do.
func Of(schema []byte) *Names {
	c := &compiler{root: schema, ids: map[*byte]uint32{}, places: map[string]*Names{}}
	n := c.place([][]byte{schema})
	return n
}

// Named returns Names of an object whose members have these names.
func Named(names []string) *Names {
	n := &Names{}
	for _, name := range names {
		n.add(name, nil)
	}
	return n
}

func (n *Names) add(name string, place *Names) {
	if n.places == nil {
		n.places, n.keys = map[string]*Names{}, map[string]struct{}{}
	}
	n.places[name] = place
	n.keys[Key(name)] = struct{}{}
}

// An AmbiguousError is the name of a member that a careless reader could take for another one.
type AmbiguousError struct{ Name string }

// Error names the member and says what is wrong with it.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the name %.64q differs from the name of another member only in case or in white space "+
		"around it", e.Name)
}

// Check returns an [*AmbiguousError] if a member of a valid object, or of a value in it, has a name that a
// careless reader could take for one of the schema, or for that of another member. Members that the
// schema names are never ambiguous.
func (n *Names) Check(object []byte) error {
	d := jsonscan.Descend(object)
	return n.check(&d, true)
}

// check checks the next value. Without names at its place, members are compared only if outermost is set.
func (n *Names) check(d *jsonscan.Descent, outermost bool) error {
	switch {
	case n == nil:
		d.Value()
	case d.Into('{'):
		return n.checkMembers(d, outermost)
	case (n.items != nil || n.first != nil) && d.Into('['):
		for i := 0; d.More(); i++ {
			place := n.items
			if i < len(n.first) {
				place = n.first[i]
			}
			if err := place.check(d, false); err != nil {
				return err
			}
		}
	default:
		d.Value()
	}
	return nil
}

func (n *Names) checkMembers(d *jsonscan.Descent, outermost bool) error {
	var others map[string]struct{}
	for name, ok := d.Key(); ok; name, ok = d.Key() {
		place, named := n.places[string(name)]
		if !named {
			place = n.rest
		}
		if !named && (outermost || len(n.places) > 0) {
			key := Key(name)
			_, twice := others[key]
			if _, folds := n.keys[key]; folds || twice {
				return &AmbiguousError{string(name)}
			}
			if others == nil {
				others = map[string]struct{}{}
			}
			others[key] = struct{}{}
		}
		if err := place.check(d, false); err != nil {
			return err
		}
	}
	return nil
}

// A compiler finds the names in a schema, by the place of the values that they are for: the set of
// subschemas that may apply there.
type compiler struct {
	root   []byte
	ids    map[*byte]uint32  // of subschemas
	places map[string]*Names // by the ids
	read   int               // bytes
	any    *Names            // has all names of the schema at every place
}

// place returns the names of the place that some schemas apply to, nil if there are none.
func (c *compiler) place(schemas [][]byte) *Names {
	seen, ids := map[uint32]bool{}, []uint32(nil)
	found := subschemas{properties: map[string][][]byte{}}
	for len(schemas) > 0 {
		s := schemas[len(schemas)-1]
		schemas = schemas[:len(schemas)-1]
		if jsonscan.Kind(s) != '{' {
			continue
		}
		if c.read += len(s); c.read > maxRead {
			return c.everywhere()
		}
		if id := c.id(s); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
			more, ok := found.add(c, s)
			if !ok {
				return c.everywhere()
			}
			schemas = append(schemas, more...)
		}
	}
	slices.Sort(ids)
	var key []byte
	for _, id := range ids {
		key = binary.BigEndian.AppendUint32(key, id)
	}
	if n, ok := c.places[string(key)]; ok {
		return n
	}
	if len(c.places) >= maxPlaces {
		return c.everywhere()
	}
	if found.isEmpty() {
		return nil
	}
	n := &Names{}
	c.places[string(key)] = n
	for name := range found.properties {
		n.add(name, c.place(found.named(c, name)))
	}
	rest := slices.Clone(found.rest)
	for _, p := range found.patterns {
		rest = append(rest, p.schema)
	}
	n.rest = c.place(rest)
	n.items = c.place(found.items)
	for _, schemas := range found.first {
		n.first = append(n.first, c.place(append(slices.Clone(schemas), found.contains...)))
	}
	return n
}

func (c *compiler) id(s []byte) uint32 {
	id, ok := c.ids[&s[0]]
	if !ok {
		id = uint32(len(c.ids))
		c.ids[&s[0]] = id
	}
	return id
}

// A pattern is a regular expression for names; nil, one whose syntax is not known, matches all.
type pattern struct {
	names  *regexp.Regexp
	schema []byte
}

// subschemas are those of the values in a value, of all schemas that apply to it.
type subschemas struct {
	properties      map[string][][]byte
	patterns        []pattern
	rest            [][]byte
	items, contains [][]byte // contains are in items too
	first           [][][]byte
}

func (f *subschemas) isEmpty() bool {
	return len(f.properties)+len(f.patterns)+len(f.rest)+len(f.items)+len(f.first) == 0
}

// named returns the schemas of the member with a name.
func (f *subschemas) named(c *compiler, name string) [][]byte {
	schemas := f.properties[name]
	for _, p := range f.patterns {
		if c.read += len(name); c.read > maxRead || p.names == nil || p.names.MatchString(name) {
			schemas = append(schemas, p.schema)
		}
	}
	return schemas
}

// add adds those of a schema, and returns other schemas for the same value. ok is false if one of them is
// outside the schema or has a dynamic scope.
func (f *subschemas) add(c *compiler, schema []byte) (same [][]byte, ok bool) {
	for keyword, value := range jsonscan.Members(schema) {
		switch string(keyword) {
		case "properties":
			for name, s := range jsonscan.Members(value) {
				f.properties[string(name)] = append(f.properties[string(name)], s)
			}
		case "patternProperties":
			for text, s := range jsonscan.Members(value) {
				names, _ := regexp.Compile(string(text))
				f.patterns = append(f.patterns, pattern{names, s})
			}
		case "additionalProperties", "unevaluatedProperties":
			f.rest = append(f.rest, value)
		case "items", "prefixItems":
			if jsonscan.Kind(value) != '[' {
				f.items = append(f.items, value)
				break
			}
			for i, s := range values(value) {
				if i == len(f.first) {
					f.first = append(f.first, nil)
				}
				f.first[i] = append(f.first[i], s)
			}
		case "additionalItems", "unevaluatedItems", "contains":
			f.items = append(f.items, value)
			if string(keyword) == "contains" {
				f.contains = append(f.contains, value)
			}
		case "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies":
			same = append(same, values(value)...)
		case "if", "then", "else", "not":
			same = append(same, value)
		case "$ref", "$dynamicRef", "$recursiveRef":
			s, ok := c.resolve(value)
			if !ok {
				return nil, false
			}
			same = append(same, s)
		}
	}
	return same, true
}

// values returns the values of the members of an object, or the elements of an array.
func values(container []byte) (all [][]byte) {
	for _, value := range jsonscan.Members(container) {
		all = append(all, value)
	}
	return slices.AppendSeq(all, jsonscan.Elements(container))
}

// resolve returns the schema that a JSON pointer in a reference leads to.
func (c *compiler) resolve(ref []byte) (schema []byte, ok bool) {
	text, _ := jsonscan.Unquote(ref)
	at := c.root
	if text == "#" {
		return at, true
	}
	path, ok := strings.CutPrefix(text, "#/")
	for token := range strings.SplitSeq(path, "/") {
		if c.read += len(at); !ok || c.read > maxRead {
			return nil, false
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if jsonscan.Kind(at) == '[' {
			at, ok = element(at, token)
		} else {
			at, ok = jsonscan.Get(at, token)
		}
	}
	return at, ok
}

func element(array []byte, index string) ([]byte, bool) {
	i := 0
	for value := range jsonscan.Elements(array) {
		if fmt.Sprint(i) == index {
			return value, true
		}
		i++
	}
	return nil, false
}

// everywhere returns names that has each name of the schema at every place.
func (c *compiler) everywhere() *Names {
	if c.any == nil {
		n := &Names{}
		n.rest, n.items, c.any = n, n, n
		collect(n, c.root)
	}
	return c.any
}

// collect adds the names of all properties in a value.
func collect(n *Names, value []byte) {
	for keyword, v := range jsonscan.Members(value) {
		if string(keyword) == "properties" {
			for name := range jsonscan.Members(v) {
				n.add(string(name), n)
			}
		}
		collect(n, v)
	}
	for v := range jsonscan.Elements(value) {
		collect(n, v)
	}
}
