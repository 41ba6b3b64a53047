package schema

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// For returns the schema of a Go type as encoding/json encodes it. It is computed once per type.
// The error names the field and the allowed values. The documentation of package mcp contains the
// rules; in addition:
//
// A type with a text method is a string. A type with a JSON method, any and json.RawMessage accept
// any value. Small and unsigned integers get their range. On a slice, tag options that do not fit
// an array apply to its items, and the default a|b means two items.
func For(t reflect.Type) (*Schema, error) { return cached(t, false) }

// ForElicitation returns the schema of a struct as a form: a flat object of strings, numbers,
// integers, booleans, enums and lists of enum values. Other types are an error.
//
// Spec: client/elicitation, Requested Schema.
func ForElicitation(t reflect.Type) (*Schema, error) { return cached(t, true) }

// inferred caches the schemas of types, whose number is limited in a program.
var inferred sync.Map // of cacheKey to func() (*Schema, error)

type cacheKey struct {
	typ  reflect.Type
	form bool
}

func cached(t reflect.Type, form bool) (*Schema, error) {
	f, ok := inferred.Load(cacheKey{t, form})
	if !ok {
		once := sync.OnceValues(func() (*Schema, error) { return infer(t, form) })
		f, _ = inferred.LoadOrStore(cacheKey{t, form}, once)
	}
	return f.(func() (*Schema, error))()
}

func infer(t reflect.Type, form bool) (*Schema, error) {
	if t == nil {
		return nil, fmt.Errorf("a nil type has no schema")
	}
	root := deref(t)
	in := &inference{root: root, form: form, recursive: map[reflect.Type]string{}}
	k, err := in.typeOf(root)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", t, err)
	}
	if form && root.Kind() != reflect.Struct {
		return nil, fmt.Errorf("type %s: a form is a struct of strings, numbers, booleans and enums", t)
	}
	if len(in.defs) > 0 {
		k.set("$defs", in.defs.append(nil))
	}
	s, err := Compile(k.append(nil))
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", t, err)
	}
	if _, err := s.Headers(); err != nil {
		return nil, fmt.Errorf("type %s: %w", t, err)
	}
	return s, nil
}

// keywords are the members of a schema, in the order in which they are published.
type keywords []keyword

type keyword struct {
	name string
	raw  []byte
}

func (k keywords) get(name string) []byte {
	if i := slices.IndexFunc(k, func(w keyword) bool { return w.name == name }); i >= 0 {
		return k[i].raw
	}
	return nil
}

func (k *keywords) set(name string, raw []byte) {
	if i := slices.IndexFunc(*k, func(w keyword) bool { return w.name == name }); i >= 0 {
		(*k)[i].raw = raw
		return
	}
	*k = append(*k, keyword{name, raw})
}

func (k keywords) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i, w := range k {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(jsonscan.AppendQuote(dst, w.name), ':'), w.raw...)
	}
	return append(dst, '}')
}

// typ returns the schema's JSON type, or "" if it allows several.
func (k keywords) typ() string { return strings.Trim(string(k.get("type")), `"`) }

func ofType(name string) keywords { return keywords{{"type", quote(name)}} }

func quote(s string) []byte { return jsonscan.AppendQuote(nil, s) }

// An inference derives the schema of a root type.
type inference struct {
	root      reflect.Type
	form      bool
	open      []reflect.Type          // the types that contain the current type
	recursive map[reflect.Type]string // the references of types that contain themselves
	defs      keywords
	nodes     int
}

func (in *inference) typeOf(t reflect.Type) (keywords, error) {
	t = deref(t)
	if ref, ok := in.recursive[t]; ok {
		return keywords{{"$ref", quote(ref)}}, nil
	}
	if slices.Contains(in.open, t) {
		in.recursive[t] = "#"
		if t != in.root {
			in.recursive[t] = "#/$defs/" + in.defName(t)
		}
		return in.typeOf(t)
	}
	if in.nodes++; in.nodes > MaxNodes {
		return nil, fmt.Errorf("its schema has more than %d parts", MaxNodes)
	}
	in.open = append(in.open, t)
	k, err := in.build(t)
	in.open = in.open[:len(in.open)-1]
	if err != nil {
		return nil, err
	}
	if ref, ok := in.recursive[t]; ok && t != in.root {
		in.defs.set(strings.TrimPrefix(ref, "#/$defs/"), k.append(nil))
		return in.typeOf(t)
	}
	return k, nil
}

// defName returns a unique name for a recursive type that needs no escapes in a reference.
func (in *inference) defName(t reflect.Type) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, t.Name())
	used := slices.Collect(maps.Values(in.recursive))
	unique := name
	for n := 2; slices.Contains(used, "#/$defs/"+unique); n++ {
		unique = name + strconv.Itoa(n)
	}
	return unique
}

func (in *inference) build(t reflect.Type) (keywords, error) {
	k, err := in.shape(t)
	if err != nil {
		return nil, err
	}
	if values, err := enumOf(t); err != nil {
		return nil, err
	} else if values != nil {
		k.set("enum", values)
	}
	return k, nil
}

func (in *inference) shape(t reflect.Type) (keywords, error) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return keywords{{"type", quote("string")}, {"format", quote("date-time")}}, nil
	case t.PkgPath() == "math/big" && t.Name() == "Int": // reflect.TypeFor would link the package
		return ofType("integer"), nil
	case t == reflect.TypeFor[stdjson.Number]():
		return nil, fmt.Errorf("json.Number has no schema, want int64, float64 or json.RawMessage")
	case isJSON(t):
		return nil, nil
	case isText(t):
		return ofType("string"), nil
	}
	switch t.Kind() {
	case reflect.String:
		return ofType("string"), nil
	case reflect.Bool:
		return ofType("boolean"), nil
	case reflect.Float32, reflect.Float64:
		return ofType("number"), nil
	case reflect.Slice, reflect.Array:
		return in.list(t)
	case reflect.Map:
		return in.mapping(t)
	case reflect.Struct:
		return in.object(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return nil, nil
		}
	}
	low, high, ok := integerRange(t.Kind())
	if !ok {
		return nil, fmt.Errorf("%s has no schema, want structs, slices, maps with text or integer keys, strings, "+
			"numbers, booleans, any or json.RawMessage", t)
	}
	k := ofType("integer")
	if low != "" {
		k.set("minimum", []byte(low))
	}
	if high != "" {
		k.set("maximum", []byte(high))
	}
	return k, nil
}

func (in *inference) list(t reflect.Type) (keywords, error) {
	if isBytes(t) {
		return keywords{{"type", quote("string")}, {"contentEncoding", quote("base64")}}, nil
	}
	items, err := in.typeOf(t.Elem())
	if err != nil {
		return nil, fmt.Errorf("items: %w", err)
	}
	k := ofType("array")
	k.set("items", items.append(nil))
	if t.Kind() == reflect.Array {
		n := strconv.AppendInt(nil, int64(t.Len()), 10)
		k.set("minItems", n)
		k.set("maxItems", n)
	}
	return k, nil
}

func (in *inference) mapping(t reflect.Type) (keywords, error) {
	if _, _, ok := integerRange(t.Key().Kind()); !ok && t.Key().Kind() != reflect.String && !isText(t.Key()) {
		return nil, fmt.Errorf("%s has no schema, want text or integer keys", t)
	}
	values, err := in.typeOf(t.Elem())
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	k := ofType("object")
	if len(values) > 0 {
		k.set("additionalProperties", values.append(nil))
	}
	return k, nil
}

func (in *inference) object(t reflect.Type) (keywords, error) {
	if in.form && t != in.root {
		return nil, checkForm(ofType("object"))
	}
	fields, err := fieldsOf(t)
	if err != nil {
		return nil, err
	}
	// The decoder rejects some tags and embedded types: fail now, not at the first call.
	if err := json.Unmarshal([]byte("{}"), reflect.New(t).Interface(), goJSON); err != nil {
		return nil, fmt.Errorf("%s", reason(err))
	}
	var properties keywords
	var required []string
	for _, f := range fields {
		k, err := in.member(f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		properties.set(f.name, k.append(nil))
		if !f.optional && k.get("default") == nil {
			required = append(required, f.name)
		}
	}
	k := ofType("object")
	k.set("properties", properties.append(nil))
	if len(required) > 0 {
		raw, err := Encode(required)
		if err != nil {
			return nil, err
		}
		k.set("required", raw)
	}
	if !in.form {
		k.set("additionalProperties", []byte("false"))
	}
	return k, nil
}

func (in *inference) member(f *field) (keywords, error) {
	k, err := in.typeOf(f.Type)
	if err != nil {
		return nil, err
	}
	if f.quoted {
		switch k.typ() {
		case "integer", "number", "boolean", "string":
			k = ofType("string")
		}
	}
	if _, ok := f.Tag.Lookup("jsonschema_description"); ok {
		return nil, fmt.Errorf(`unknown tag jsonschema_description: put the description into the tag jsonschema:"…"`)
	}
	options, err := parseTag(f.Tag.Get("jsonschema"))
	if err != nil {
		return nil, fmt.Errorf("jsonschema tag: %w", err)
	}
	k, err = annotate(k, options, f.accepts)
	if err != nil {
		return nil, fmt.Errorf("jsonschema tag: %w", err)
	}
	if in.form {
		return k, checkForm(k)
	}
	return k, nil
}

// accepts returns an error if a JSON value cannot be decoded into the field.
func (f *field) accepts(raw []byte) error {
	return Decode(keywords{{f.name, raw}}.append(nil), reflect.New(f.owner).Interface())
}

// enumOf returns the values of a type's Enum method as JSON, or nil without the method.
func enumOf(t reflect.Type) ([]byte, error) {
	m := reflect.New(t).MethodByName("Enum")
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 || m.Type().Out(0) != reflect.SliceOf(t) {
		return nil, nil
	}
	values := m.Call(nil)[0]
	if values.Len() == 0 {
		return nil, fmt.Errorf("%s.Enum returned no values", t)
	}
	return Encode(values.Interface())
}

// deref returns the type that a pointer points to. A pointer type may be recursive.
func deref(t reflect.Type) reflect.Type {
	const most = 10
	for i := 0; i < most && t.Kind() == reflect.Pointer; i++ {
		t = t.Elem()
	}
	return t
}

// isBytes reports whether a type is a slice that is base64 in JSON.
func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !isJSON(t.Elem()) && !isText(t.Elem())
}

func isJSON(t reflect.Type) bool {
	return implements[json.Marshaler](t) || implements[json.Unmarshaler](t) ||
		implements[json.MarshalerTo](t) || implements[json.UnmarshalerFrom](t) || t == reflect.TypeFor[jsontext.Value]()
}

func isText(t reflect.Type) bool {
	return implements[encoding.TextMarshaler](t) || implements[encoding.TextUnmarshaler](t) ||
		implements[encoding.TextAppender](t)
}

func implements[I any](t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[I]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

// integerRange returns the bounds of an integer kind, as far as a JSON number can express them
// without losing precision.
func integerRange(k reflect.Kind) (low, high string, ok bool) {
	switch k {
	case reflect.Int, reflect.Int64:
		return "", "", true
	case reflect.Int8:
		return "-128", "127", true
	case reflect.Int16:
		return "-32768", "32767", true
	case reflect.Int32:
		return "-2147483648", "2147483647", true
	case reflect.Uint, reflect.Uint64:
		return "0", "", true
	case reflect.Uint8:
		return "0", "255", true
	case reflect.Uint16:
		return "0", "65535", true
	case reflect.Uint32:
		return "0", "4294967295", true
	}
	return "", "", false
}
