package form

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxReferences bounds a chain of references: a schema may refer to itself.
	maxReferences = 8
	// MaxSubschemas bounds the subschemas that are read: nested alternatives grow exponentially.
	MaxSubschemas = 1000
	// maxPattern bounds a shown pattern, in characters.
	maxPattern = 100
)

// A Choice is an allowed value.
type Choice struct {
	Value stdjson.RawMessage
	Title string
}

// Text returns the choice as it is typed.
func (c Choice) Text() string {
	if s, err := rawjson.Unquote(c.Value); err == nil {
		return s
	}
	return string(c.Value)
}

// A Reader reads the subschemas of a document. It must not be used concurrently.
type Reader struct {
	Root []byte // valid JSON
	Left int    // subschemas that may still be read
}

// Resolve resolves references within the document.
func (r *Reader) Resolve(schema []byte) []byte {
	for range maxReferences {
		raw, ok := rawjson.Get(schema, "$ref")
		if !ok || r.Left == 0 {
			return schema
		}
		r.Left--
		target, err := rawjson.Unquote(raw)
		path, local := strings.CutPrefix(target, "#")
		if err != nil || !local {
			return schema
		}
		found := r.Root
		for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if step == "" {
				continue
			}
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			if found, ok = rawjson.Get(found, step); !ok {
				return schema
			}
		}
		schema = found
	}
	return schema
}

// Kinds returns the types that a schema allows, and the values if it lists them.
func (r *Reader) Kinds(schema []byte) (types []string, choices []Choice) {
	if raw, ok := rawjson.Get(schema, "type"); ok {
		types = Strings(raw)
	}
	if raw, ok := rawjson.Get(schema, "const"); ok {
		return types, []Choice{{raw, rawjson.GetString(schema, "title")}}
	}
	if raw, ok := rawjson.Get(schema, "enum"); ok {
		titles, _ := rawjson.Get(schema, "enumNames")
		all := Strings(titles)
		for value := range rawjson.Elements(raw) {
			c := Choice{Value: value}
			if len(choices) < len(all) {
				c.Title = all[len(choices)]
			}
			choices = append(choices, c)
		}
		return types, choices
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		branches, ok := rawjson.Get(schema, key)
		if !ok {
			continue
		}
		whole := true
		for branch := range rawjson.Elements(branches) {
			if r.Left == 0 {
				return nil, nil
			}
			r.Left--
			t, c := r.Kinds(r.Resolve(branch))
			types = append(types, t...)
			choices = append(choices, c...)
			whole = whole && c != nil
		}
		if !whole {
			choices = nil
		}
	}
	slices.Sort(types)
	return slices.Compact(types), choices
}

// Branches returns an iterator over the subschemas of keywords such as allOf, resolved.
func (r *Reader) Branches(of []byte, keys ...string) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for _, key := range keys {
			all, _ := rawjson.Get(of, key)
			for branch := range rawjson.Elements(all) {
				if r.Left == 0 {
					return
				}
				r.Left--
				if !yield(r.Resolve(branch)) {
					return
				}
			}
		}
	}
}

// Strings returns a string, or the strings of an array.
func Strings(raw []byte) (all []string) {
	if s, err := rawjson.Unquote(raw); err == nil {
		return []string{s}
	}
	for element := range rawjson.Elements(raw) {
		if s, err := rawjson.Unquote(element); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// Bounds returns the limits that a schema sets on a value, in words.
func Bounds(schema []byte) (notes []string) {
	for _, limit := range []struct{ key, phrase string }{
		{"minimum", "at least %s"}, {"exclusiveMinimum", "more than %s"},
		{"maximum", "at most %s"}, {"exclusiveMaximum", "less than %s"}, {"multipleOf", "a multiple of %s"},
		{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s values"}, {"maxItems", "at most %s values"},
	} {
		if v, ok := rawjson.Get(schema, limit.key); ok && rawjson.Kind(v) == '0' {
			note := fmt.Sprintf(limit.phrase, v)
			if string(v) == "1" {
				note = strings.TrimSuffix(note, "s")
			}
			notes = append(notes, note)
		}
	}
	if v, _ := rawjson.Get(schema, "uniqueItems"); string(v) == "true" {
		notes = append(notes, "all different")
	}
	if pattern := rawjson.GetString(schema, "pattern"); pattern != "" {
		notes = append(notes, "matching "+term.Shorten(pattern, maxPattern))
	}
	return notes
}

// CheckFormat checks a string against a format, which JSON Schema treats as an annotation. It accepts
// other values, and formats that it does not know.
func CheckFormat(format string, value []byte) error {
	text, err := rawjson.Unquote(value)
	if err != nil {
		return nil // not a string
	}
	switch format {
	case "email":
		a, parse := mail.ParseAddress(text)
		if err = parse; err == nil && a.Address != text {
			err = errors.New("more than an address")
		}
	case "uri":
		u, parse := url.Parse(text)
		if err = parse; err == nil && u.Scheme == "" {
			err = errors.New("no scheme")
		}
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return fmt.Errorf("got %q, want format %s", text, format)
	}
	return nil
}
