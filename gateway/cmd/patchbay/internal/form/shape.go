package form

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// A shape describes the fields for a schema.
type shape struct {
	Field             // the properties of the field that depend on the schema alone
	initial    []byte // default; nil without a default
	properties []property
	names      map[string]bool // of the properties
	closed     bool            // an object without members besides its properties
	bare       bool            // an object about whose members the schema says nothing
	inner      []byte          // schema of elements, or of members besides the properties; nil for any value
}

// A property is a member that the schema of an object names.
type property struct {
	name     string
	required bool
	schema   []byte
}

// A shaper reads the shapes of the subschemas of a document. Equal subschemas are read once.
type shaper struct {
	Reader
	shapes map[*byte]*shape
}

func newShaper(schema []byte) *shaper {
	if rawjson.Valid(schema) != nil {
		schema = []byte("true")
	}
	return &shaper{Reader{schema, MaxSubschemas}, map[*byte]*shape{}}
}

// shape returns the shape of a subschema. A schema that it does not support is a JSON field.
func (r *shaper) shape(schema []byte) *shape {
	if len(schema) == 0 {
		return &shape{Field: Field{Kind: KindJSON}}
	}
	if s, known := r.shapes[&schema[0]]; known {
		return s
	}
	s := &shape{Field: Field{Kind: KindJSON}}
	r.shapes[&schema[0]] = s
	core := schema
	for range maxReferences {
		core = r.Resolve(core)
		s.Title = cmp.Or(s.Title, rawjson.GetString(core, "title"))
		s.Description = cmp.Or(s.Description, rawjson.GetString(core, "description"))
		if s.initial == nil {
			s.initial, _ = rawjson.Get(core, "default")
		}
		only, nullable := r.only(core)
		s.Nullable = s.Nullable || nullable
		if only == nil {
			break
		}
		core = only
	}
	s.Format = cmp.Or(rawjson.GetString(core, "format"), rawjson.GetString(core, "contentMediaType"))
	s.Notes = Bounds(core)
	r.fill(s, core)
	return s
}

// only returns the alternative that is the whole schema apart from null, such as the schema of a member
// of allOf, or nil. nullable reports whether null is another alternative.
func (r *shaper) only(core []byte) (only []byte, nullable bool) {
	_, hasType := rawjson.Get(core, "type")
	_, hasMembers := rawjson.Get(core, "properties")
	var others [][]byte
	for branch := range r.Branches(core, compounds...) {
		types, choices := r.Kinds(branch)
		isNull := slices.Equal(types, []string{"null"}) || len(choices) == 1 && string(choices[0].Value) == "null"
		if isNull {
			nullable = true
		} else {
			others = append(others, branch)
		}
	}
	if len(others) != 1 || hasMembers || hasType && !nullable {
		return nil, nullable
	}
	return others[0], nullable
}

// compounds are the keywords whose subschemas are about the same value.
var compounds = []string{"allOf", "oneOf", "anyOf"}

// fill sets the kind of a shape and everything that depends on it.
func (r *shaper) fill(s *shape, core []byte) {
	types, choices := r.Kinds(core)
	types = slices.Clone(types)
	if i := slices.Index(types, "null"); i >= 0 && len(types) > 1 {
		types, s.Nullable = slices.Delete(types, i, i+1), true
	}
	_, compound := rawjson.Get(core, "allOf")
	switch {
	case choices != nil:
		s.Kind, s.Choices = KindChoice, choices
	case slices.Equal(types, []string{"string"}):
		s.Kind = KindText
	case slices.Equal(types, []string{"boolean"}):
		s.Kind, s.Choices = KindBoolean, []Choice{{Value: []byte("true")}, {Value: []byte("false")}}
	case slices.Equal(types, []string{"integer"}):
		s.Kind, s.Notes = KindNumber, append([]string{"integer"}, s.Notes...)
	case len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t != "number" && t != "integer" }):
		s.Kind = KindNumber
	case slices.Equal(types, []string{"array"}):
		r.fillList(s, core)
	case slices.Equal(types, []string{"object"}), types == nil && !compound:
		r.fillObject(s, core)
	}
	lacksNull := !slices.ContainsFunc(s.Choices, func(c Choice) bool { return string(c.Value) == "null" })
	if s.Choices != nil && s.Nullable && lacksNull {
		s.Choices = append(slices.Clone(s.Choices), Choice{Value: []byte("null")})
	}
}

func (r *shaper) fillList(s *shape, core []byte) {
	items, _ := rawjson.Get(core, "items")
	if _, tuple := rawjson.Get(core, "prefixItems"); !tuple && rawjson.Kind(items) == '{' {
		s.Kind, s.inner = KindList, items
	}
}

// fillObject makes an object or a map of a schema. An object without any named member, or whose
// alternatives name members, is a JSON field.
func (r *shaper) fillObject(s *shape, core []byte) {
	for branch := range r.Branches(core, compounds...) {
		if _, has := rawjson.Get(branch, "properties"); has {
			return
		}
	}
	required := map[string]bool{}
	list, _ := rawjson.Get(core, "required")
	for _, name := range Strings(list) {
		required[name] = true
	}
	named, has := rawjson.Get(core, "properties")
	s.names = map[string]bool{}
	for key, schema := range rawjson.Members(named) {
		name := string(key)
		if strings.ContainsFunc(name, unicode.IsControl) { // browsers change the name
			return
		}
		s.names[name] = true
		s.properties = append(s.properties, property{name, required[name], schema})
	}
	additional, given := rawjson.Get(core, "additionalProperties")
	kind := rawjson.Kind(additional)
	switch {
	case kind == 'f':
		s.closed, has = true, true
	case kind == '{':
		s.inner, s.Extensible, has = additional, true, true
	case given && has:
		s.Extensible = true
	}
	switch {
	case has && s.properties == nil && s.Extensible:
		s.Kind = KindMap
	case has:
		s.Kind = KindObject
	default:
		types, _ := rawjson.Get(core, "type")
		s.bare = types != nil
	}
}
