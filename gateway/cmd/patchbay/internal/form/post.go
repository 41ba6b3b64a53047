package form

import (
	stdjson "encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of posted values. The text of a field is posted under its pointer; the other values are
// posted under a prefix and the pointer. Pointers begin with a slash, so the names are unambiguous.
const (
	rootInput   = "#"
	PrefixBlank = "blank:" // [Field.Blank]
	PrefixRaw   = "raw:"   // [Field.Raw]
	PrefixOpen  = "open:"  // of an open container: the number of elements, or "=" before each extra name
	PrefixKey   = "key:"   // the name of the member to add
	ButtonAdd   = "add"    // opens the container that the value of the button names, or adds an element
	ButtonDrop  = "remove" // removes an element, or closes a container
	ButtonNull  = "null"   // sets a container to null
)

// A reader makes fields from posted values.
type reader struct {
	*shaper
	values url.Values
	left   int
	err    error
}

// Read returns the fields that a browser posted, after the action of the button that was pressed. It
// returns an error if the values contain more than [MaxFields] fields.
func Read(schema stdjson.RawMessage, posted url.Values) (*Form, error) {
	r := &reader{newShaper(schema), posted, MaxFields - 1, nil}
	root := r.rootField()
	r.field(root, r.shape(r.Root))
	if r.err != nil {
		return nil, r.err
	}
	return &Form{root}, nil
}

// Pressed reports whether posted values come from a button that changes the fields.
func Pressed(posted url.Values) bool {
	return posted.Has(ButtonAdd) || posted.Has(ButtonDrop) || posted.Has(ButtonNull)
}

// field fills in a field with its posted values.
func (r *reader) field(f *Field, s *shape) {
	if f.IsContainer() && !r.values.Has(f.Input()) {
		r.container(f, s)
		return
	}
	if f.IsContainer() {
		f.Kind = KindJSON
	}
	f.Text = lines(r.values.Get(f.Input()))
	f.Raw = r.values.Get(PrefixRaw + f.Pointer)
	f.Blank = r.blankValue(f)
	same := func(c Choice) bool { return string(c.Value) == f.Text }
	if f.Choices != nil && f.Text != "" && !slices.ContainsFunc(f.Choices, same) {
		f.Choices = append(slices.Clone(f.Choices), Choice{Value: stdjson.RawMessage(f.Text)})
	}
}

// blankValue returns the posted meaning of an empty field, if the field allows it.
func (r *reader) blankValue(f *Field) string {
	blank := r.values.Get(PrefixBlank + f.Pointer)
	if blank == BlankNull && f.Nullable || blank == BlankEmpty && f.Kind == KindText {
		return blank
	}
	return ""
}

func (r *reader) container(f *Field, s *shape) {
	state, open := r.values[PrefixOpen+f.Pointer]
	pressed := func(button string) bool { return r.values.Has(button) && r.values.Get(button) == f.Pointer }
	adds := pressed(ButtonAdd)
	f.Open = (open || adds || f.Pointer == "") && !pressed(ButtonDrop) && !pressed(ButtonNull)
	switch {
	case pressed(ButtonNull) && f.Nullable:
		f.Blank = BlankNull
	case !f.Open:
		f.Blank = r.blankValue(f)
	case f.Kind == KindList:
		r.elements(f, s, state, adds)
	case open || f.Pointer == "":
		r.members(f, s, state, adds)
	default:
		r.fresh(f, s)
	}
}

// fresh fills in a field that the user added: it has its defaults, and a container is open.
func (r *reader) fresh(f *Field, s *shape) {
	b := &builder{r.shaper, r.left, true}
	required := f.Required
	f.Required = true
	filled, err := b.field(f, s, nil, 0)
	if err == nil {
		*f = *filled
	}
	f.Required, r.left = required, b.left
}

// members adds the fields of an open object.
func (r *reader) members(f *Field, s *shape, state []string, adds bool) {
	for _, p := range s.properties {
		r.add(f, r.member(f, p.name, p.schema, p.required), p.schema, false)
	}
	if s.closed {
		return
	}
	for _, entry := range state {
		if name, ok := strings.CutPrefix(entry, "="); ok {
			r.addNamed(f, s, name, false)
		}
	}
	name := r.values.Get(PrefixKey + f.Pointer)
	switch {
	case adds && name == "":
		f.refuse("enter the name of the new member first")
	case adds:
		r.addNamed(f, s, name, true)
	}
}

// elements adds the fields of an open list. A removed element moves the following elements up.
func (r *reader) elements(f *Field, s *shape, state []string, adds bool) {
	count := 0
	if len(state) > 0 {
		count, _ = strconv.Atoi(state[0])
	}
	for i := 0; i < count && r.err == nil; i++ {
		element := r.element(f, strconv.Itoa(i), s.inner)
		if r.values.Has(ButtonDrop) && r.values.Get(ButtonDrop) == element.Pointer {
			continue
		}
		r.add(f, element, s.inner, false)
		element.rename(f.Pointer, strconv.Itoa(len(f.Fields)-1))
	}
	if adds {
		r.add(f, r.element(f, strconv.Itoa(len(f.Fields)), s.inner), s.inner, true)
	}
}

// rename changes the last part of the pointer of a field, also in the pointers of its fields.
func (f *Field) rename(parent, name string) {
	f.Name = name
	f.Pointer = parent + "/" + pointerEscapes.Replace(name)
	for _, inner := range f.Fields {
		inner.rename(f.Pointer, inner.Name)
	}
}

// addNamed adds a member that the schema does not name, unless it is removed.
func (r *reader) addNamed(f *Field, s *shape, name string, fresh bool) {
	member := r.element(f, name, s.inner)
	exists := slices.ContainsFunc(f.Fields, func(other *Field) bool { return other.Name == name })
	switch {
	case r.values.Has(ButtonDrop) && r.values.Get(ButtonDrop) == member.Pointer:
	case exists:
		f.refuse(fmt.Sprintf("the member %q exists already", name))
	case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
		f.refuse(fmt.Sprintf("invalid name %q: must be UTF-8 without control characters", name))
	default:
		r.add(f, member, s.inner, fresh)
	}
}

// add adds a field to a container and fills it in.
func (r *reader) add(to, f *Field, schema []byte, fresh bool) {
	if r.left == 0 && r.err == nil {
		r.err = fmt.Errorf("a form contains at most %d fields: edit the value as JSON", MaxFields)
	}
	if r.err != nil {
		return
	}
	r.left--
	if s := r.shape(schema); fresh {
		r.fresh(f, s)
	} else {
		r.field(f, s)
	}
	to.Fields = append(to.Fields, f)
}
