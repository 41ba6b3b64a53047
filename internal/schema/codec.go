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

// goJSON are the options for types of the application. They are the options of encoding/json, for
// which the types were written, except where these contradict the schema of [For].
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

// Encode encodes v as encoding/json does, with these differences: a nil slice is [] and a nil map
// is {}, HTML characters are not escaped, marshal methods on pointers are called for values too,
// and invalid UTF-8 is an error.
func Encode(v any) ([]byte, error) { return json.Marshal(v, goJSON) }

// DecodeAnyCase decodes JSON into v, a pointer, as encoding/json does: names match in any case.
// Unlike encoding/json, it refuses duplicate names and invalid UTF-8. The further options override
// its own.
func DecodeAnyCase(data []byte, v any, further ...json.Options) error {
	return json.Unmarshal(data, v, goJSON, json.MatchCaseInsensitiveNames(true), json.JoinOptions(further...))
}

// Decode decodes JSON into v, a pointer, as encoding/json does, with these differences: names match
// exactly, duplicate names and invalid UTF-8 are errors, and a number such as 5.0, which is an
// integer in JSON Schema, can be decoded into an integer. The further options override its own, and
// the data may be decoded twice. The error is a [*ValidationError].
func Decode(data []byte, v any, further ...json.Options) error {
	opts := json.JoinOptions(goJSON, json.JoinOptions(further...))
	err := json.Unmarshal(data, v, opts)
	if err == nil {
		return nil
	}
	if plain, changed := plainIntegers(data); changed {
		reflect.ValueOf(v).Elem().SetZero()
		if json.Unmarshal(plain, v, opts) == nil {
			return nil
		}
	}
	return decodeError(data, err)
}

func decodeError(data []byte, err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		var syntactic *jsontext.SyntacticError
		if errors.As(err, &syntactic) {
			p := Problem{Path: string(syntactic.JSONPointer), Text: "invalid JSON: " + syntactic.Err.Error()}
			return &ValidationError{Problems: []Problem{p}}
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

// reason returns the text of the innermost error, without the names of Go packages.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(err.Error(), "json: ")
		}
		err = inner
	}
}

// wanted describes the JSON that can be decoded into a Go type; it is "" if that is unknown.
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
