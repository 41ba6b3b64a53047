package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A field is a JSON member of a struct, embedded structs flattened.
type field struct {
	reflect.StructField
	owner    reflect.Type // the struct that declares it
	path     []int
	name     string
	tagged   bool
	optional bool
	quoted   bool // by the `string` option
}

// fieldsOf returns the members that encoding/json writes for a struct, in the order of its fields.
// Of several fields of the same name it takes the least nested, then the only field with a tag,
// else no field.
func fieldsOf(root reflect.Type) ([]*field, error) {
	type level struct {
		typ      reflect.Type
		path     []int
		optional bool
	}
	var all []*field
	seen := map[reflect.Type]bool{root: true}
	for queue := []level{{typ: root}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.typ.NumField() {
			f := &field{StructField: at.typ.Field(i), owner: at.typ, optional: at.optional}
			f.path = append(slices.Clip(at.path), i)
			keep, err := f.readTag()
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", at.typ, f.Name, err)
			}
			inner := f.Type
			if inner.Kind() == reflect.Pointer && inner.Name() == "" {
				inner = inner.Elem()
			}
			switch {
			case !keep:
			case f.Anonymous && !f.tagged && inner.Kind() == reflect.Struct:
				if f.Type != inner && !f.IsExported() {
					return nil, fmt.Errorf("%s.%s: a pointer to an unexported struct cannot be filled: "+
						"embed the struct itself", at.typ, f.Name)
				}
				if !seen[inner] {
					seen[inner] = true
					queue = append(queue, level{inner, f.path, f.optional || f.Type.Kind() == reflect.Pointer})
				}
			case f.IsExported():
				all = append(all, f)
			}
		}
	}
	return dominant(all), nil
}

// readTag reads the `json` tag of a field. It reports whether the field is a member.
func (f *field) readTag() (keep bool, err error) {
	tag := f.Tag.Get("json")
	if tag == "-" || !f.IsExported() && !f.Anonymous {
		return false, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	if strings.ContainsAny(name, "'\"\\`") {
		return false, fmt.Errorf("json tag %q: the name must not have quotes or backslashes", tag)
	}
	f.name, f.tagged = cmp.Or(name, f.Name), name != ""
	f.optional = f.optional || f.Type.Kind() == reflect.Pointer
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "omitempty", "omitzero":
			f.optional = true
		case "string":
			f.quoted = true
		case "":
		default:
			return false, fmt.Errorf("json tag %q: option %q, want omitempty, omitzero or string", tag, o)
		}
	}
	return true, nil
}

// dominant returns the fields that no other field hides, in the order of their declaration.
func dominant(all []*field) []*field {
	rank := func(f *field) int {
		if f.tagged {
			return 2 * len(f.path)
		}
		return 2*len(f.path) + 1
	}
	lowest := map[string][]*field{} // the fields of the lowest rank, by name
	for _, f := range all {
		switch same := lowest[f.name]; {
		case same == nil || rank(f) < rank(same[0]):
			lowest[f.name] = []*field{f}
		case rank(f) == rank(same[0]):
			lowest[f.name] = append(same, f)
		}
	}
	var kept []*field
	for _, same := range lowest {
		if len(same) == 1 {
			kept = append(kept, same[0])
		}
	}
	// A slice of pointers shares the code of SortFunc with other types, a slice of structs does
	// not.
	slices.SortFunc(kept, func(a, b *field) int { return slices.Compare(a.path, b.path) })
	return kept
}
