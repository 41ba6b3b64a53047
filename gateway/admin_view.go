package gateway

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/patchbay-mcp/patchbay/host"
)

// A view of a struct has its exported fields with the names and types of JSON, so that a field which
// the host adds appears in responses and in their schema by itself:
//
//   - Err becomes error, RetryAfter, a time.Duration, becomes retryAfterMs, PID becomes pid
//   - an error becomes its text, an *mcp.ExitError too, a *host.Caller becomes an object
//   - functions, channels and interfaces other than error are left out
//
// A viewField is one field of a view.
type viewField struct {
	from  int
	value func(v reflect.Value) reflect.Value
}

type viewType struct {
	to     reflect.Type
	fields []viewField
}

var viewTypes sync.Map // of reflect.Type to *viewType

var (
	typeError    = reflect.TypeFor[error]()
	typeDuration = reflect.TypeFor[time.Duration]()
	typeTime     = reflect.TypeFor[time.Time]()
	typeCaller   = reflect.TypeFor[*host.Caller]()
)

// viewOf returns the type of the view of a struct.
func viewOf(t reflect.Type) *viewType {
	if v, ok := viewTypes.Load(t); ok {
		return v.(*viewType)
	}
	v := &viewType{}
	var to []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		as, value := viewValue(f.Type)
		if !f.IsExported() || as == nil {
			continue
		}
		name := viewName(f.Name)
		if f.Type == typeDuration {
			name += "Ms"
		}
		option := ",omitzero"
		if k := as.Kind(); k == reflect.Bool || k == reflect.Int ||
			k == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct || f.Name == "State" {
			option = ""
		}
		to = append(to, reflect.StructField{Name: f.Name, Type: as, Tag: reflect.StructTag(fmt.Sprintf(`json:"%s%s"`,
			name, option))})
		v.fields = append(v.fields, viewField{i, value})
	}
	v.to = reflect.StructOf(to)
	viewTypes.Store(t, v)
	return v
}

// viewValue returns the type of values in a view, nil if they are left out, and how they are converted.
func viewValue(t reflect.Type) (as reflect.Type, convert func(reflect.Value) reflect.Value) {
	same := func(v reflect.Value) reflect.Value { return v }
	switch {
	case t.Implements(typeError):
		return reflect.TypeFor[string](), func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.ValueOf("")
			}
			return reflect.ValueOf(cut(v.Interface().(error).Error(), maxProblem))
		}
	case t == typeDuration:
		return reflect.TypeFor[int64](), func(v reflect.Value) reflect.Value {
			return reflect.ValueOf(v.Interface().(time.Duration).Milliseconds())
		}
	case t == typeCaller:
		return reflect.TypeFor[*adminCaller](), func(v reflect.Value) reflect.Value {
			return reflect.ValueOf(newAdminCaller(v.Interface().(*host.Caller)))
		}
	case t == typeTime:
		return t, same
	case t.Kind() == reflect.Struct:
		inner := viewOf(t)
		return inner.to, inner.convert
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		inner := viewOf(t.Elem())
		return reflect.PointerTo(inner.to), func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.Zero(reflect.PointerTo(inner.to))
			}
			p := reflect.New(inner.to)
			p.Elem().Set(inner.convert(v.Elem()))
			return p
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		inner := viewOf(t.Elem())
		return reflect.SliceOf(inner.to), func(v reflect.Value) reflect.Value {
			all := reflect.MakeSlice(reflect.SliceOf(inner.to), 0, v.Len())
			for i := range v.Len() {
				all = reflect.Append(all, inner.convert(v.Index(i)))
			}
			return all
		}
	case t.Kind() == reflect.Func, t.Kind() == reflect.Chan, t.Kind() == reflect.Interface, t.Kind() == reflect.Pointer:
		return nil, nil
	}
	return t, same
}

// convert returns the view of a struct.
func (v *viewType) convert(from reflect.Value) reflect.Value {
	to := reflect.New(v.to).Elem()
	for i, f := range v.fields {
		to.Field(i).Set(f.value(from.Field(f.from)))
	}
	return to
}

// viewName returns the name of a field in JSON.
func viewName(name string) string {
	if name == "Err" {
		return "error"
	}
	upper := 0 // at the beginning
	for upper < len(name) && unicode.IsUpper(rune(name[upper])) {
		upper++
	}
	if upper > 1 && upper < len(name) {
		upper-- // of the next word
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}

// An adminCaller is a caller in JSON.
type adminCaller struct {
	Subject string `json:"subject,omitzero" jsonschema:"of the principal; absent for the local user"`
	Issuer  string `json:"issuer,omitzero"`
	Profile string `json:"profile,omitzero"`
	Server  string `json:"server,omitzero"`
}

func newAdminCaller(c *host.Caller) *adminCaller {
	if c == nil {
		return nil
	}
	a := &adminCaller{Profile: c.Profile, Server: c.Server}
	if c.Principal != nil {
		a.Subject, a.Issuer = c.Principal.Subject, c.Principal.Issuer
	}
	return a
}
