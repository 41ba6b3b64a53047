package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// optionsOf holds the keys of a tag that fit a JSON type. Other keys fit every type.
var optionsOf = map[string][]string{
	"string":  {"enum", "titles", "minLength", "maxLength", "pattern", "format"},
	"integer": {"enum", "titles", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"number":  {"enum", "titles", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"array":   {"minItems", "maxItems", "uniqueItems"},
}

// annotate adds the options of a tag to the schema of a field. fits returns an error if a JSON
// value cannot be decoded into the Go type; the schema does not describe text methods.
func annotate(k keywords, options []option, fits func(raw []byte) error) (keywords, error) {
	var head keywords // texts for models come first
	var ofItems []option
	var titles, byDefault *option
	typ := k.typ()
	for _, o := range options {
		switch {
		case o.key == "title" || o.key == "description":
			head.set(o.key, quote(o.value))
		case o.key == "header":
			k.set(headerKeyword, quote(o.value))
		case o.key == "default":
			byDefault = &o
		case !slices.Contains(optionsOf[typ], o.key):
			if typ != "array" {
				return nil, fmt.Errorf("%s does not fit %s", o.key, describeType(typ))
			}
			ofItems = append(ofItems, o)
		case o.key == "titles":
			titles = &o
		case o.key == "enum":
			k.set("enum", listOf(typ, o.value))
		case o.key == "pattern" || o.key == "format":
			k.set(o.key, quote(o.value))
		default:
			k.set(o.key, []byte(o.value)) // Compile checks the value
		}
	}
	k = slices.Insert(k, min(len(k), 1), head...)
	if err := k.annotateItems(ofItems, fits); err != nil {
		return nil, err
	}
	if err := k.checkEnum(fits); err != nil {
		return nil, err
	}
	if titles != nil {
		if err := k.setTitles(splitList(titles.value)); err != nil {
			return nil, err
		}
	}
	if byDefault != nil {
		return k, k.setDefault(byDefault.value, fits)
	}
	return k, nil
}

func (k *keywords) annotateItems(options []option, fits func(raw []byte) error) error {
	if len(options) == 0 {
		return nil
	}
	var items keywords
	for name, raw := range jsonscan.Members(k.get("items")) {
		items.set(string(name), raw)
	}
	itemFits := func(raw []byte) error { return fits(slices.Concat([]byte("["), raw, []byte("]"))) }
	items, err := annotate(items, options, itemFits)
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	// Spec: client/elicitation: the items of a list of titled values use anyOf alone, a single
	// titled value uses oneOf.
	if titled := items.get("oneOf"); titled != nil && items.typ() == "string" {
		items = keywords{{"anyOf", titled}}
	}
	k.set("items", items.append(nil))
	return nil
}

func (k keywords) checkEnum(fits func(raw []byte) error) error {
	enum := k.get("enum")
	if enum == nil {
		return nil
	}
	if err := jsonscan.Valid(enum, jsonscan.Limits{}); err != nil {
		return fmt.Errorf("enum %s: want a list of %s", enum, describeType(k.typ()))
	}
	for v := range jsonscan.Elements(enum) {
		if err := k.check(v, fits); err != nil {
			return fmt.Errorf("enum value %s: %w", v, err)
		}
	}
	return nil
}

func (k *keywords) setTitles(titles []string) error {
	values := slices.Collect(jsonscan.Elements(k.get("enum")))
	if len(values) != len(titles) {
		return fmt.Errorf("%d titles for %d enum values", len(titles), len(values))
	}
	choice := []byte{'['}
	for i, v := range values {
		if i > 0 {
			choice = append(choice, ',')
		}
		choice = keywords{{"const", v}, {"title", quote(titles[i])}}.append(choice)
	}
	*k = slices.DeleteFunc(*k, func(w keyword) bool { return w.name == "enum" })
	k.set("oneOf", append(choice, ']'))
	return nil
}

func (k *keywords) setDefault(value string, fits func(raw []byte) error) error {
	raw := []byte(value)
	switch typ := k.typ(); {
	case typ == "string":
		raw = quote(value)
	case typ == "array" && !strings.HasPrefix(value, "["):
		var items keywords
		for name, raw := range jsonscan.Members(k.get("items")) {
			items.set(string(name), raw)
		}
		raw = listOf(items.typ(), value)
	}
	if err := jsonscan.Valid(raw, jsonscan.Limits{}); err != nil {
		return fmt.Errorf("default %s: want JSON of %s", value, describeType(k.typ()))
	}
	if err := k.check(raw, fits); err != nil {
		return fmt.Errorf("default %s: %w", value, err)
	}
	k.set("default", raw)
	return nil
}

func (k keywords) check(raw []byte, fits func(raw []byte) error) error {
	s, err := Compile(k.append(nil))
	if err != nil {
		return err
	}
	if err := s.Validate(raw); err != nil {
		return err
	}
	return fits(raw)
}

// listOf returns a value such as small|medium as a JSON array.
func listOf(typ, value string) []byte {
	list := []byte{'['}
	for i, item := range splitList(value) {
		if i > 0 {
			list = append(list, ',')
		}
		if typ == "string" {
			list = jsonscan.AppendQuote(list, item)
		} else {
			list = append(list, item...)
		}
	}
	return append(list, ']')
}

func describeType(typ string) string {
	switch typ {
	case "":
		return "a field of any type"
	case "array", "object", "integer":
		return "an " + typ
	}
	return "a " + typ
}

// formKeywords are the keywords that a form allows for each type. Spec: schema
// PrimitiveSchemaDefinition.
var formKeywords = map[string][]string{
	"string":  {"type", "title", "description", "minLength", "maxLength", "format", "enum", "oneOf", "default"},
	"integer": {"type", "title", "description", "minimum", "maximum", "default"},
	"number":  {"type", "title", "description", "minimum", "maximum", "default"},
	"boolean": {"type", "title", "description", "default"},
	"array":   {"type", "title", "description", "minItems", "maxItems", "items", "default"},
}

// checkForm returns an error if a form cannot contain the field.
func checkForm(k keywords) error {
	allowed := formKeywords[k.typ()]
	if allowed == nil {
		return fmt.Errorf("a form cannot have %s, want a string, number, integer, boolean, enum or list of enum values",
			describeType(k.typ()))
	}
	for _, w := range k {
		if !slices.Contains(allowed, w.name) {
			return fmt.Errorf("a form does not have %s for %s, want only %s",
				w.name, describeType(k.typ()), strings.Join(allowed[1:], ", "))
		}
	}
	formats := []string{`"email"`, `"uri"`, `"date"`, `"date-time"`}
	if format := k.get("format"); format != nil && !slices.Contains(formats, string(format)) {
		return fmt.Errorf("a form does not have format %s, want one of %s", format, strings.Join(formats, ", "))
	}
	if k.typ() == "array" {
		_, enum := jsonscan.Get(k.get("items"), "enum")
		_, titled := jsonscan.Get(k.get("items"), "anyOf")
		if typ, _ := jsonscan.Get(k.get("items"), "type"); !titled && (!enum || string(typ) != `"string"`) {
			return fmt.Errorf("the items of a list in a form must be values of a string enum")
		}
	}
	return nil
}
