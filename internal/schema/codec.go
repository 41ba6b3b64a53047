package schema

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// goJSON is how the types of Go authors are encoded: as encoding/json does it, since that is what
// their tags and methods were written for, except where it would contradict the schema that For
// publishes. Names match exactly and stand once, text is UTF-8, a nil slice is [], a nil map is {},
// methods on pointers are called for values too, and errors have a path.
var goJSON = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsonv1.CallMethodsWithLegacySemantics(false),
	json.MatchCaseInsensitiveNames(false),
	json.FormatNilSliceAsNull(false),
	json.FormatNilMapAsNull(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
	jsontext.EscapeForHTML(false),
)

// Encode returns v as JSON, by the rules of encoding/json with these differences: a nil slice is []
// and a nil map is {}, HTML characters are not escaped, a marshal method on the pointer is called
// for a value too, and text that is not UTF-8 is an error. Optional pointers that are nil are null
// here; Schema.DropNulls leaves them out.
func Encode(v any) ([]byte, error) {
	return json.Marshal(v, goJSON)
}

// Decode fills v, a pointer, from JSON by the rules of encoding/json, except that names match
// exactly, a name may not stand twice and text must be UTF-8. A number such as 5.0, an integer to
// JSON Schema, fills an integer.
//
// The error is a *ValidationError that names the path, what stands there and what is wanted, for a
// model to read.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v, goJSON)
	if err == nil {
		return nil
	}
	if plain, changed := plainIntegers(data); changed {
		reflect.ValueOf(v).Elem().SetZero()
		if json.Unmarshal(plain, v, goJSON) == nil {
			return nil
		}
	}
	return decodeError(data, err)
}

// decodeError says a decoder's error in the words of a validation.
func decodeError(data []byte, err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		var syntactic *jsontext.SyntacticError
		if errors.As(err, &syntactic) {
			return &ValidationError{Problems: []Problem{{Path: string(syntactic.JSONPointer), Text: "invalid JSON: " + syntactic.Err.Error()}}}
		}
		return &ValidationError{Problems: []Problem{{Text: err.Error()}}}
	}
	p := Problem{Path: string(semantic.JSONPointer)}
	got := "a wrong value"
	if raw, ok := lookup(data, p.Path); ok {
		got = shown(raw)
	}
	p.Text = "got " + got
	if want := wanted(semantic.GoType); want != "" {
		p.Text += ", want " + want
	}
	if semantic.Err != nil && semantic.GoType != reflect.TypeFor[time.Time]() {
		p.Text += " (" + reason(semantic.Err) + ")"
	}
	return &ValidationError{Problems: []Problem{p}}
}

// reason is the last link of a chain of errors, without the names of Go packages before it.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(err.Error(), "json: ")
		}
		err = inner
	}
}

// wanted says in JSON's words what fills a Go type, "" where the type says nothing.
func wanted(t reflect.Type) string {
	if t == nil {
		return ""
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a date-time as in 2006-01-02T15:04:05Z"
	case isText(t):
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		if isBytes(t) {
			return "a base64 string"
		}
		return "an array"
	}
	if low, high, ok := integerRange(t.Kind()); ok {
		switch {
		case low != "" && high != "":
			return "an integer from " + low + " to " + high
		case low != "":
			return "an integer from " + low + " up"
		}
		return "an integer"
	}
	return ""
}
