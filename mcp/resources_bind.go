package mcp

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/uritemplate"
)

// bindContents returns the function that makes a result of what a resource's function returned, and the MIME type of such
// results, if it can be told.
func bindContents[Out any]() (give func(Out) *ReadResult, mimeType string, err error) {
	var out Out
	switch any(&out).(type) {
	case *string:
		return func(v Out) *ReadResult {
			return &ReadResult{Contents: []*ResourceContents{{Text: any(v).(string)}}}
		}, "text/plain", nil
	case *[]byte:
		return func(v Out) *ReadResult {
			blob := any(v).([]byte)
			if blob == nil {
				blob = []byte{}
			}
			return &ReadResult{Contents: []*ResourceContents{{Blob: blob}}}
		}, "application/octet-stream", nil
	case **ResourceContents:
		return func(v Out) *ReadResult {
			if c := any(v).(*ResourceContents); c != nil {
				return &ReadResult{Contents: []*ResourceContents{c}}
			}
			return nil
		}, "", nil
	case *[]*ResourceContents:
		return func(v Out) *ReadResult { return &ReadResult{Contents: any(v).([]*ResourceContents)} }, "", nil
	case **ReadResult:
		return func(v Out) *ReadResult { return any(v).(*ReadResult) }, "", nil
	}
	return nil, "", fmt.Errorf("%s: want string, []byte, *ResourceContents, []*ResourceContents or *ReadResult", reflect.TypeFor[Out]())
}

// bindTemplate relates a template's variables to what its function takes.
func bindTemplate[Vars any](pattern string, read func(context.Context, Vars) (*ReadResult, error)) (entry templateEntry, err error) {
	if entry.template, err = uritemplate.Parse(pattern); err != nil {
		return entry, err
	}
	switch in := reflect.TypeFor[Vars](); {
	case in == reflect.TypeFor[map[string]string]():
		entry.open, err = openUntyped(entry.template, read)
		return entry, err
	case in.Kind() != reflect.Struct:
		return entry, fmt.Errorf("variables: %s: want a struct or map[string]string", in)
	default:
		if entry.args, err = textArgumentsOf(in); err != nil {
			return entry, fmt.Errorf("variables: %w", err)
		}
		entry.open, err = openTyped(entry.template, entry.args, read)
		return entry, err
	}
}

// openUntyped returns what opens a URI whose variables go into a map.
func openUntyped[Vars any](t *uritemplate.Template, read func(context.Context, Vars) (*ReadResult, error)) (func(string) (readFunc, bool), error) {
	m, err := t.Matcher(nil)
	if err != nil {
		return nil, err
	}
	return func(uri string) (readFunc, bool) {
		found, ok := m.Match(uri)
		if !ok {
			return nil, false
		}
		texts := make(map[string]string, len(found))
		for name, value := range found {
			texts[name] = value.(string)
		}
		vars := any(texts).(Vars)
		return func(ctx context.Context, _ string) (*ReadResult, error) { return read(ctx, vars) }, true
	}, nil
}

// openTyped returns what opens a URI whose variables go into the fields of a struct.
func openTyped[Vars any](t *uritemplate.Template, args *textArguments, read func(context.Context, Vars) (*ReadResult, error)) (func(string) (readFunc, bool), error) {
	m, err := typedMatcher(t, args)
	if err != nil {
		return nil, err
	}
	return func(uri string) (readFunc, bool) {
		var vars Vars
		if found, ok := m.Match(uri); !ok || !args.fill(found, uri, &vars) {
			return nil, false
		}
		return func(ctx context.Context, _ string) (*ReadResult, error) { return read(ctx, vars) }, true
	}, nil
}

// uriField is the name of the field that gets the whole URI.
const uriField = "uri"

// typedMatcher returns the matcher of a template whose variables have types.
func typedMatcher(t *uritemplate.Template, args *textArguments) (*uritemplate.Matcher, error) {
	lists := map[string]bool{}
	names := t.Variables()
	for _, a := range args.list {
		lists[a.name] = a.kind == "array"
		if !slices.Contains(names, a.name) && (a.name != uriField || a.kind != "string") {
			return nil, fmt.Errorf("field %q is no variable of the template, which has %q", a.name, names)
		}
	}
	for _, name := range names {
		if args.find(name) == nil {
			return nil, fmt.Errorf("variable %q has no field of this name", name)
		}
	}
	return t.Matcher(lists)
}

// fill decodes the variables of a URI into v, a pointer to a struct. False means that they do not fit.
func (a *textArguments) fill(vars map[string]any, uri string, v any) bool {
	if _, taken := vars[uriField]; !taken && a.find(uriField) != nil {
		vars[uriField] = uri
	}
	object := []byte{'{'}
	for name, value := range vars {
		object = a.appendMember(object, name, value)
	}
	settled, err := a.settle(append(object, '}'))
	return err == nil && schema.Decode(settled, v) == nil
}
