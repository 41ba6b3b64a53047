package schema

import (
	"bytes"
	"cmp"
	"encoding"
	stdjson "encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Decoder is a faster [Decode] for a type. It decodes structs, slices and pointers of strings,
// numbers and booleans itself, and leaves other types, and every text that may be invalid for the
// type, to Decode. A call with arguments of 1 MiB costs 1.6 times a bare handler with it and 2.7
// times without.
type Decoder struct {
	fill filler // nil if Decode decodes the type
}

// NewDecoder returns the decoder of a type. It is safe for concurrent use.
func NewDecoder(t reflect.Type) *Decoder {
	return &Decoder{fill: fillerOf(t, nil)}
}

// Decode decodes JSON, which must be valid, into v, a pointer to the zero value of the type, like
// [Decode].
func (d *Decoder) Decode(data []byte, v any) error {
	if d.fill == nil {
		return Decode(data, v)
	}
	to := reflect.ValueOf(v).Elem()
	end, ok := d.fill(to, data, skipSpace(data, 0))
	if ok && skipSpace(data, end) == len(data) {
		return nil
	}
	to.SetZero()
	return Decode(data, v)
}

// A filler sets a zero value from the JSON value at an offset, and returns the end of that value.
// It reports false if the text may be invalid for the type; then Decode returns the error.
type filler func(v reflect.Value, doc []byte, at int) (end int, ok bool)

// fillerOf returns the filler of a type, or nil. The types that contain it are around: a recursive
// type has no filler.
func fillerOf(t reflect.Type, around []reflect.Type) filler {
	if hasOwnForm(t) || slices.Contains(around, t) {
		return nil
	}
	around = append(slices.Clip(around), t)
	switch t.Kind() {
	case reflect.String:
		return fillString
	case reflect.Bool:
		return fillBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fillInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fillUint
	case reflect.Float32, reflect.Float64:
		return fillFloat
	case reflect.Pointer:
		return fillPointer(t.Elem(), around)
	case reflect.Slice:
		return fillSlice(t, around)
	case reflect.Struct:
		return fillStruct(t, around)
	}
	return nil
}

// hasOwnForm reports whether a type defines its own JSON form or a special form in the JSON
// package.
func hasOwnForm(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[stdjson.Number]() {
		return true
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[json.UnmarshalerFrom]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// scalar returns the text of a number or literal. A null leaves the value as it is.
func scalar(doc []byte, at int) (text []byte, end int, null bool) {
	end = skipScalar(doc, at)
	return doc[at:end], end, string(doc[at:end]) == "null"
}

func fillString(v reflect.Value, doc []byte, at int) (int, bool) {
	if at >= len(doc) || doc[at] != '"' {
		_, end, null := scalar(doc, at)
		return end, null
	}
	end := skipString(doc, at)
	text := inner(doc[at:end])
	if bytes.IndexByte(text, '\\') < 0 {
		v.SetString(string(text))
		return end, true
	}
	s, err := jsonscan.Unquote(doc[at:end])
	v.SetString(s)
	return end, err == nil
}

func fillBool(v reflect.Value, doc []byte, at int) (int, bool) {
	text, end, null := scalar(doc, at)
	v.SetBool(string(text) == "true")
	return end, null || v.Bool() || string(text) == "false"
}

func fillInt(v reflect.Value, doc []byte, at int) (int, bool) {
	text, end, null := scalar(doc, at)
	n, ok := smallInteger(text)
	if !ok || v.OverflowInt(n) {
		return end, null
	}
	v.SetInt(n)
	return end, true
}

func fillUint(v reflect.Value, doc []byte, at int) (int, bool) {
	text, end, null := scalar(doc, at)
	n, ok := smallInteger(text)
	if !ok || text[0] == '-' || v.OverflowUint(uint64(n)) {
		return end, null
	}
	v.SetUint(uint64(n))
	return end, true
}

func fillFloat(v reflect.Value, doc []byte, at int) (int, bool) {
	text, end, null := scalar(doc, at)
	if jsonscan.Kind(text) != '0' {
		return end, null
	}
	f, err := strconv.ParseFloat(string(text), v.Type().Bits())
	v.SetFloat(f)
	return end, err == nil
}

func fillPointer(elem reflect.Type, around []reflect.Type) filler {
	fill := fillerOf(elem, around)
	if fill == nil {
		return nil
	}
	return func(v reflect.Value, doc []byte, at int) (int, bool) {
		if _, end, null := scalar(doc, at); null {
			return end, true
		}
		p := reflect.New(elem)
		v.Set(p)
		return fill(p.Elem(), doc, at)
	}
}

func fillSlice(t reflect.Type, around []reflect.Type) filler {
	fill := fillerOf(t.Elem(), around)
	if fill == nil || t.Elem().Kind() == reflect.Uint8 { // bytes are base64
		return nil
	}
	return func(v reflect.Value, doc []byte, at int) (int, bool) {
		if at >= len(doc) || doc[at] != '[' {
			_, end, null := scalar(doc, at)
			return end, null
		}
		v.Set(reflect.MakeSlice(t, 0, 0))
		i := skipSpace(doc, at+1)
		for n := 0; i < len(doc) && doc[i] != ']'; n++ {
			if n == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(n + 1)
			end, ok := fill(v.Index(n), doc, i)
			if !ok || end == i {
				return end, false
			}
			i = next(doc, end)
		}
		return i + 1, i < len(doc)
	}
}

type filledField struct {
	name  string
	index int
	fill  filler
}

func fillStruct(t reflect.Type, around []reflect.Type) filler {
	fields, ok := filledFields(t, around)
	if !ok {
		return nil
	}
	return func(v reflect.Value, doc []byte, at int) (int, bool) {
		if at >= len(doc) || doc[at] != '{' {
			_, end, null := scalar(doc, at)
			return end, null
		}
		i := skipSpace(doc, at+1)
		for n := 0; i < len(doc) && doc[i] == '"'; n++ {
			nameEnd, valueAt := member(doc, i)
			if valueAt > len(doc) {
				return valueAt, false
			}
			var end int
			filled := true
			if f := findField(fields, unquote(doc[i:nameEnd]), n); f != nil {
				end, filled = f.fill(v.Field(f.index), doc, valueAt)
			} else {
				end = skipValue(doc, valueAt)
			}
			if !filled {
				return end, false
			}
			i = next(doc, end)
		}
		return i + 1, i < len(doc) && doc[i] == '}'
	}
}

// findField returns the field with a name, or nil. Most senders keep the order of the fields.
func findField(fields []filledField, name []byte, place int) *filledField {
	if place < len(fields) && fields[place].name == string(name) {
		return &fields[place]
	}
	for i := range fields {
		if fields[i].name == string(name) {
			return &fields[i]
		}
	}
	return nil
}

// filledFields returns the fields of a struct. It reports false if a field lacks a filler or an
// unusual tag.
func filledFields(t reflect.Type, around []reflect.Type) (fields []filledField, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous && !tagged {
			continue
		}
		name, options, more := strings.Cut(tag, ",")
		name = cmp.Or(name, f.Name)
		fill := fillerOf(f.Type, around)
		known := !more || options == "omitempty" || options == "omitzero"
		plain := known && name != "-" && !strings.ContainsAny(name, "\\'\"`") && utf8.ValidString(name)
		if fill == nil || f.Anonymous || !f.IsExported() || !plain || findField(fields, []byte(name), 0) != nil {
			return nil, false
		}
		fields = append(fields, filledField{name, i, fill})
	}
	return fields, len(fields) > 0 || t.NumField() == 0
}
