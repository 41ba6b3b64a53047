package mcp

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// An appender writes by hand the JSON that the JSON package gives for it. That package works out a type when it first
// meets it: a program that has just been started would wait for that.
type appender interface {
	append(dst []byte) ([]byte, error)
}

// An object is a JSON object that is written member by member.
type object struct {
	dst  []byte
	some bool  // it has a member
	err  error // the first one
}

func newObject(dst []byte) *object { return &object{dst: append(dst, '{')} }

// end returns what was written.
func (o *object) end() ([]byte, error) {
	if o.err != nil {
		return nil, o.err
	}
	return append(o.dst, '}'), nil
}

func (o *object) key(name string) {
	if o.some {
		o.dst = append(o.dst, ',')
	}
	o.some = true
	o.dst = append(jsonscan.AppendQuote(o.dst, name), ':')
}

// text adds a string, which must be UTF-8.
func (o *object) text(name, value string) {
	o.key(name)
	o.quote(name, value)
}

func (o *object) quote(name, value string) {
	if !utf8.ValidString(value) && o.err == nil {
		o.err = fmt.Errorf("%s: invalid UTF-8", name)
	}
	o.dst = jsonscan.AppendQuote(o.dst, value)
}

// textIfAny adds a string that is left out when it is empty.
func (o *object) textIfAny(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// texts adds a list of strings.
func (o *object) texts(name string, values []string) {
	o.key(name)
	o.dst = append(o.dst, '[')
	for i, v := range values {
		if i > 0 {
			o.dst = append(o.dst, ',')
		}
		o.quote(name, v)
	}
	o.dst = append(o.dst, ']')
}

// flag adds a boolean that is left out when it is false.
func (o *object) flag(name string, on bool) {
	if on {
		o.key(name)
		o.dst = append(o.dst, "true"...)
	}
}

// choice adds a boolean that may be absent.
func (o *object) choice(name string, v *bool) {
	if v != nil {
		o.key(name)
		o.dst = strconv.AppendBool(o.dst, *v)
	}
}

// mark adds an empty object, whose being there says it all, unless there is none.
func (o *object) mark(name string, v *struct{}) {
	if v != nil {
		o.key(name)
		o.dst = append(o.dst, "{}"...)
	}
}

// part adds what writes itself.
func (o *object) part(name string, v appender) {
	o.key(name)
	o.take(v.append(o.dst))
}

// value adds any value.
func (o *object) value(name string, v any) {
	o.key(name)
	o.take(appendValue(o.dst, v))
}

// open adds what is open to anything, unless it is nil.
func (o *object) open(name string, v map[string]any) {
	if v != nil {
		o.value(name, v)
	}
}

func (o *object) icons(v []Icon) {
	if len(v) > 0 {
		o.value("icons", v)
	}
}

func (o *object) annotations(v *Annotations) {
	if v != nil {
		o.value("annotations", v)
	}
}

// raw adds JSON that somebody else has written, on one line; null for none.
func (o *object) raw(name string, text []byte) {
	o.key(name)
	if text == nil {
		text = []byte("null")
	}
	o.take(jsontext.AppendFormat(o.dst, text))
}

func (o *object) take(dst []byte, err error) {
	if err != nil && o.err == nil {
		o.err = err
	}
	o.dst = dst
}
