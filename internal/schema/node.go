package schema

import (
	"math"
	"regexp"
)

// A node is a compiled subschema. The rules are grouped by the type of value to which they apply.
type node struct {
	never    bool // the schema false
	types    typeSet
	enum     *enumeration
	number   *numberRules
	text     *textRules
	array    *arrayRules
	object   *objectRules
	compound *compoundRules
	home     *resource
	header   []byte // x-mcp-header as written, or nil
	fallback []byte // default as written, or nil
}

// A typeSet is a set of JSON types, 0 for all of them.
type typeSet uint8

const (
	typeBoolean typeSet = 1 << iota
	typeInteger
	typeNumber
	typeString
	typeArray
	typeObject
	typeNull
)

// typeNames are the names of the bits of a typeSet.
var typeNames = []string{"boolean", "integer", "number", "string", "array", "object", "null"}

func (t typeSet) names() []string {
	var names []string
	for i, name := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// An enumeration holds the values of enum or const.
type enumeration struct {
	canonical map[string]struct{}
	values    []string // as written, for messages
}

type numberRules struct {
	minimum, maximum, above, below *bound
	multipleOf                     divisor

	// If plain, the rules are equivalent to an inclusive range of integers.
	low, high int64
	plain     bool
}

// A bound is a number and its text for messages.
type bound struct {
	decimal
	text string
}

type textRules struct {
	min, max int // characters
	pattern  *pattern
}

type pattern struct {
	*regexp.Regexp
	cost int // instructions per character
}

type arrayRules struct {
	min, max                 int // items
	prefix                   []*node
	items                    *node // for items after the prefix
	contains                 *node
	minContains, maxContains int
	unique                   bool
	unevaluated              *node
}

type objectRules struct {
	min, max    int // members
	properties  []property
	index       map[string]int // of properties, by name
	required    int            // number of required properties
	patterns    []patternProperty
	additional  *node
	names       *node
	dependent   []dependency
	unevaluated *node
}

// A property is a name in properties or required.
type property struct {
	name     string
	place    int   // among the properties
	node     *node // nil if the name is only in required
	required bool
}

type patternProperty struct {
	*pattern
	node *node
}

// A dependency contains the rules that the presence of a member adds.
type dependency struct {
	name     string
	required []string
	node     *node
}

// compoundRules are schemas for the same value.
type compoundRules struct {
	refs            []resolvedReference
	allOf           []*node
	anyOf           []*node
	oneOf           []*node
	not             *node
	when            *node // the keyword if
	then, otherwise *node
}

// A resolvedReference is a resolved $ref or $dynamicRef.
type resolvedReference struct {
	target  *node
	dynamic string // the anchor that a $dynamicRef looks up in outer resources first; may be empty
}

func (n *node) compounds() *compoundRules {
	if n.compound == nil {
		n.compound = &compoundRules{}
	}
	return n.compound
}

// property returns the entry of a name, and creates it if needed.
func (r *objectRules) property(name string) *property {
	if r.index == nil {
		r.index = map[string]int{}
	}
	i, ok := r.index[name]
	if !ok {
		i = len(r.properties)
		r.index[name] = i
		r.properties = append(r.properties, property{name: name, place: i})
	}
	return &r.properties[i]
}

// addEnum restricts the allowed values. If a schema contains enum and const, both apply.
func (n *node) addEnum(values [][]byte) {
	e := &enumeration{canonical: make(map[string]struct{}, len(values))}
	for _, raw := range values {
		key := string(appendCanonical(nil, raw))
		if n.enum != nil {
			if _, ok := n.enum.canonical[key]; !ok {
				continue
			}
		}
		e.canonical[key] = struct{}{}
		e.values = append(e.values, string(raw))
	}
	n.enum = e
}

func (n *node) finish() {
	if r := n.number; r != nil && r.multipleOf.digits == 0 {
		r.low, r.high, r.plain = math.MinInt64, math.MaxInt64, true
		r.narrow(r.minimum, func(v int64) { r.low = max(r.low, v) })
		r.narrow(r.above, func(v int64) { r.low = max(r.low, v+1) })
		r.narrow(r.maximum, func(v int64) { r.high = min(r.high, v) })
		r.narrow(r.below, func(v int64) { r.high = min(r.high, v-1) })
	}
}

// narrow applies a bound to the integer range, or clears plain if the bound is not an integer.
func (r *numberRules) narrow(b *bound, apply func(int64)) {
	if b == nil {
		return
	}
	v, ok := smallInteger([]byte(b.text))
	if !ok {
		r.plain = false
		return
	}
	apply(v)
}

// smallInteger parses an integer of at most 18 digits without fraction and exponent.
func smallInteger(raw []byte) (v int64, ok bool) {
	const longest = 18
	digits := raw
	if len(raw) > 0 && raw[0] == '-' {
		digits = raw[1:]
	}
	if len(digits) == 0 || len(digits) > longest {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || '9' < c {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if len(digits) != len(raw) {
		v = -v
	}
	return v, true
}

// find returns the entry of a member's name, or nil. Most senders keep the order of the schema, so
// the entry in the same place is tried first.
func (r *objectRules) find(token []byte, place int) *property {
	name := unquote(token)
	if place < len(r.properties) && r.properties[place].name == string(name) {
		return &r.properties[place]
	}
	if i, ok := r.index[string(name)]; ok {
		return &r.properties[i]
	}
	return nil
}

// isPlain reports whether the schema of a property is the only schema for its value.
func (r *objectRules) isPlain() bool { return r.patterns == nil && r.names == nil }

// collects reports whether the node needs the set of evaluated members or items.
func (n *node) collects() bool {
	return n.object != nil && n.object.unevaluated != nil || n.array != nil && n.array.unevaluated != nil
}

// target follows plain references.
func (n *node) target() *node {
	for n.compound != nil && len(n.compound.refs) == 1 && n.compound.refs[0].dynamic == "" && n.types == 0 {
		n = n.compound.refs[0].target
	}
	return n
}
