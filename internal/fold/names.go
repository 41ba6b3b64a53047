package fold

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxPlaces limits the places of a schema that are distinguished. maxRead limits the bytes of
	// the schema that are read, where reading a subschema counts as perSchema bytes more. Beyond a
	// limit, every name of the schema is expected at every place.
	maxPlaces = 1000
	maxRead   = 16 << 20
	perSchema = 64
)

// Names holds the member names that a JSON schema defines for an object and for the values in it.
// The zero value contains no names. It is safe for concurrent use.
type Names struct {
	places map[string]*Names // names in the value of each member; nil for a value without names
	keys   map[string]string // Key of each member to one member with this Key
	shared map[string]string // members whose Key is also the Key of another member, to the Key
	rest   *Names            // names in the values of other members
	first  []*Names          // names in the first elements of an array
	items  *Names            // names in the other elements of an array
}

// Of returns the names in a schema, or nil if it defines none. It includes every subschema that may
// apply to a value.
func Of(schema []byte) *Names {
	c := &compiler{root: schema, ids: map[*byte]uint32{}, places: map[string]*Names{}}
	return c.place([][]byte{schema})
}

// Named returns the Names of an object with the given members, whose values contain no names.
func Named(names []string) *Names {
	n := &Names{}
	for _, name := range names {
		n.add(name, nil)
	}
	return n
}

func (n *Names) add(name string, place *Names) {
	if n.places == nil {
		n.places, n.keys, n.shared = map[string]*Names{}, map[string]string{}, map[string]string{}
	}
	n.places[name] = place
	key := Key(name)
	if other, ok := n.keys[key]; ok && other != name {
		n.shared[name], n.shared[other] = key, key
	}
	n.keys[key] = name
}

// An AmbiguousError reports a member that a lenient reader could confuse with another member.
type AmbiguousError struct{ Name string }

// Error returns a text that quotes Name.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the name %.64q differs from the name of another member only in case, in white space "+
		"around it or in invisible characters", e.Name)
}

// Check returns an [*AmbiguousError] if an object, or a value in it, contains a member that a
// lenient reader could confuse with a name of the schema or with another member. A member that the
// schema names can be ambiguous only to another such member. The object must be valid JSON.
func (n *Names) Check(object []byte) error {
	d := jsonscan.Descend(object)
	return n.check(&d, true)
}

// check checks the next value. If the schema names no members at its place, check compares its
// members with each other only if outermost is set.
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
		key, compare := n.shared[string(name)]
		if !named && (outermost || len(n.places) > 0) {
			key, compare = Key(name), true
		}
		if compare {
			_, twice := others[key]
			if _, folds := n.keys[key]; twice || folds && !named {
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

// A compiler finds the names in a schema. It identifies the place of a value by the set of
// subschemas that may apply to the value.
type compiler struct {
	root   []byte
	ids    map[*byte]uint32  // of subschemas
	places map[string]*Names // by the ids
	read   int               // bytes
	any    *Names            // contains all names of the schema at every place
}

// place returns the names of the place to which all schemas of the lists apply, or nil if there are
// none.
func (c *compiler) place(lists ...[][]byte) *Names {
	for _, list := range lists {
		c.read += len(list) * perSchema
	}
	if c.read > maxRead {
		return c.everywhere()
	}
	schemas := slices.Concat(lists...)
	seen, ids := map[uint32]bool{}, []uint32(nil)
	found := subschemas{properties: map[string][][]byte{}}
	for len(schemas) > 0 {
		s := schemas[len(schemas)-1]
		schemas = schemas[:len(schemas)-1]
		if jsonscan.Kind(s) != '{' {
			continue
		}
		if c.read += len(s) + perSchema; c.read > maxRead {
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
	c.fill(n, &found)
	return n
}

// fill sets the names of n: the names of a value and of the values in it.
func (c *compiler) fill(n *Names, found *subschemas) {
	for name, schemas := range found.properties {
		n.add(name, c.place(schemas, found.patterns, found.restOf(c, name)))
	}
	var rest, items [][]byte
	for _, r := range found.rest {
		rest = append(rest, r.schema)
	}
	n.rest = c.place(found.patterns, rest)
	slices.SortFunc(found.items, func(a, b tail) int { return a.from - b.from })
	for _, t := range found.items {
		items = append(items, t.schema)
	}
	n.items = c.place(items)
	applying := 0
	for i, schemas := range found.first {
		for applying < len(items) && found.items[applying].from <= i {
			applying++
		}
		n.first = append(n.first, c.place(schemas, items[:applying]))
	}
}

func (c *compiler) id(s []byte) uint32 {
	id, ok := c.ids[&s[0]]
	if !ok {
		id = uint32(len(c.ids))
		c.ids[&s[0]] = id
	}
	return id
}

// subschemas collects, from all schemas that apply to a value, the subschemas for its members and
// elements. A subschema of patternProperties counts for each member, because a server may send
// patterns that are slow to match.
type subschemas struct {
	properties map[string][][]byte
	patterns   [][]byte
	rest       []remainder
	first      [][][]byte
	items      []tail
}

// A remainder is the subschema for the members that are not among the properties of its schema.
type remainder struct {
	properties map[string]bool
	schema     []byte
}

// A tail is the subschema for the elements of an array from an index on.
type tail struct {
	from   int
	schema []byte
}

func (f *subschemas) isEmpty() bool {
	return len(f.properties)+len(f.patterns)+len(f.rest)+len(f.items)+len(f.first) == 0
}

// restOf returns the subschemas for a member from schemas whose properties do not contain it.
func (f *subschemas) restOf(c *compiler, name string) (schemas [][]byte) {
	if c.read += len(f.rest) * perSchema; c.read > maxRead {
		return nil // place returns all names
	}
	for _, r := range f.rest {
		if !r.properties[name] {
			schemas = append(schemas, r.schema)
		}
	}
	return schemas
}

// add adds the subschemas of a schema, and returns the other schemas that apply to the same value.
// ok is false if a reference is not a JSON pointer into the root schema.
func (f *subschemas) add(c *compiler, schema []byte) (same [][]byte, ok bool) {
	var contains []tail // for all elements, whereas f.items begin after prefixItems
	properties, tails, prefix := map[string]bool{}, len(f.items), 0
	for keyword, value := range jsonscan.Members(schema) {
		switch string(keyword) {
		case "properties":
			for name, s := range jsonscan.Members(value) {
				properties[string(name)] = true
				f.properties[string(name)] = append(f.properties[string(name)], s)
			}
		case "patternProperties":
			f.patterns = append(f.patterns, values(value)...)
		case "additionalProperties", "unevaluatedProperties":
			f.rest = append(f.rest, remainder{properties, value})
		case "items", "prefixItems":
			if jsonscan.Kind(value) != '[' {
				f.items = append(f.items, tail{schema: value})
				break
			}
			prefix = f.addFirst(values(value))
		case "additionalItems", "unevaluatedItems":
			f.items = append(f.items, tail{schema: value})
		case "contains":
			contains = append(contains, tail{schema: value})
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
	for i := range f.items[tails:] {
		f.items[tails+i].from = prefix
	}
	f.items = append(f.items, contains...)
	return same, true
}

// addFirst adds the subschemas of the first elements, and returns their number.
func (f *subschemas) addFirst(schemas [][]byte) int {
	for i, s := range schemas {
		if i == len(f.first) {
			f.first = append(f.first, nil)
		}
		f.first[i] = append(f.first[i], s)
	}
	return len(schemas)
}

// values returns the values of the members of an object, or the elements of an array.
func values(container []byte) (all [][]byte) {
	for _, value := range jsonscan.Members(container) {
		all = append(all, value)
	}
	return slices.AppendSeq(all, jsonscan.Elements(container))
}

// resolve returns the schema that a reference identifies by a JSON pointer.
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

// everywhere returns Names that contains all names of the schema at every place.
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
