package schema

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// keyword compiles a member of a schema. Unknown names are annotations.
func (c *compiler) keyword(n *node, key string, raw []byte) (err error) {
	switch key {
	case "type":
		n.types, err = parseTypes(raw)
	case "const":
		n.addEnum([][]byte{raw})
	case "enum":
		err = c.parseEnum(n, raw)
	case "default":
		n.fallback = raw
	case headerKeyword:
		n.header = raw
	case "$schema":
		err = c.sameDialect(raw)
	case "$defs":
		_, err = c.schemaMap(n, raw)
	case "$ref", "$dynamicRef":
		err = c.addReference(n, raw, key == "$dynamicRef")
	case "allOf":
		n.compounds().allOf, err = c.schemaList(n, raw)
	case "anyOf":
		n.compounds().anyOf, err = c.schemaList(n, raw)
	case "oneOf":
		n.compounds().oneOf, err = c.schemaList(n, raw)
	case "not":
		n.compounds().not, err = c.schema(raw, n.home)
	case "if":
		n.compounds().when, err = c.schema(raw, n.home)
	case "then":
		n.compounds().then, err = c.schema(raw, n.home)
	case "else":
		n.compounds().otherwise, err = c.schema(raw, n.home)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		err = numberKeyword(n, key, raw)
	case "minLength", "maxLength", "pattern":
		err = c.textKeyword(n, key, raw)
	case "prefixItems", "items", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems",
		"unevaluatedItems":
		err = c.arrayKeyword(n, key, raw)
	case "properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
		"maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties":
		err = c.objectKeyword(n, key, raw)
	}
	return err
}

// sameDialect returns an error if $schema of a subschema differs from that of the root.
func (c *compiler) sameDialect(raw []byte) error {
	draft7, err := readDialect(raw)
	if err == nil && draft7 != c.draft7 {
		return fmt.Errorf("%s differs from the dialect of the whole schema", raw)
	}
	return err
}

func numberKeyword(n *node, key string, raw []byte) (err error) {
	if n.number == nil {
		n.number = &numberRules{}
	}
	r := n.number
	switch key {
	case "minimum":
		r.minimum, err = parseBound(raw)
	case "maximum":
		r.maximum, err = parseBound(raw)
	case "exclusiveMinimum":
		r.above, err = parseBound(raw)
	case "exclusiveMaximum":
		r.below, err = parseBound(raw)
	case "multipleOf":
		r.multipleOf, err = parseDivisor(raw)
	}
	return err
}

func (c *compiler) textKeyword(n *node, key string, raw []byte) (err error) {
	if n.text == nil {
		n.text = &textRules{max: math.MaxInt}
	}
	r := n.text
	switch key {
	case "minLength":
		r.min, err = countValue(raw)
	case "maxLength":
		r.max, err = countValue(raw)
	case "pattern":
		r.pattern, err = c.parsePattern(raw)
	}
	return err
}

func (c *compiler) arrayKeyword(n *node, key string, raw []byte) (err error) {
	if n.array == nil {
		n.array = &arrayRules{max: math.MaxInt, minContains: 1, maxContains: math.MaxInt}
	}
	r := n.array
	switch key {
	case "prefixItems":
		r.prefix, err = c.schemaList(n, raw)
	case "items":
		r.items, err = c.schema(raw, n.home)
	case "contains":
		r.contains, err = c.schema(raw, n.home)
	case "minContains":
		r.minContains, err = countValue(raw)
	case "maxContains":
		r.maxContains, err = countValue(raw)
	case "minItems":
		r.min, err = countValue(raw)
	case "maxItems":
		r.max, err = countValue(raw)
	case "uniqueItems":
		r.unique = jsonscan.Kind(raw) == 't'
		if !r.unique && jsonscan.Kind(raw) != 'f' {
			err = fmt.Errorf("got %s, want true or false", shown(raw))
		}
	case "unevaluatedItems":
		r.unevaluated, err = c.schema(raw, n.home)
	}
	return err
}

func (c *compiler) objectKeyword(n *node, key string, raw []byte) (err error) {
	if n.object == nil {
		n.object = &objectRules{max: math.MaxInt}
	}
	r := n.object
	switch key {
	case "properties":
		var named []property
		named, err = c.schemaMap(n, raw)
		for _, p := range named {
			r.property(p.name).node = p.node
		}
	case "patternProperties":
		err = c.patternProperties(n, raw)
	case "additionalProperties":
		r.additional, err = c.schema(raw, n.home)
	case "propertyNames":
		r.names, err = c.schema(raw, n.home)
	case "required":
		var names []string
		names, err = stringList(raw)
		for _, name := range names {
			r.property(name).required = true
			r.required++
		}
	case "minProperties":
		r.min, err = countValue(raw)
	case "maxProperties":
		r.max, err = countValue(raw)
	case "unevaluatedProperties":
		r.unevaluated, err = c.schema(raw, n.home)
	case "dependentRequired", "dependentSchemas", "dependencies":
		err = c.dependencies(n, key, raw)
	}
	return err
}

func (c *compiler) patternProperties(n *node, raw []byte) error {
	named, err := c.schemaMap(n, raw)
	if err != nil {
		return err
	}
	for _, p := range named {
		re, err := c.parsePattern(quote(p.name))
		if err != nil {
			return at(p.name, err)
		}
		n.object.patterns = append(n.object.patterns, patternProperty{re, p.node})
	}
	return nil
}

// dependencies compiles the rules that the presence of a member adds: other required members, or a
// schema of the object. Draft-07 uses a single keyword for both.
func (c *compiler) dependencies(n *node, key string, raw []byte) error {
	if err := isObject(raw); err != nil {
		return err
	}
	for name, value := range jsonscan.Members(raw) {
		d := dependency{name: string(name)}
		var err error
		if key == "dependentRequired" || key == "dependencies" && jsonscan.Kind(value) == '[' {
			d.required, err = stringList(value)
		} else {
			d.node, err = c.schema(value, n.home)
		}
		if err != nil {
			return at(d.name, err)
		}
		n.object.dependent = append(n.object.dependent, d)
	}
	return nil
}

func (c *compiler) schemaList(n *node, raw []byte) ([]*node, error) {
	var list []*node
	if jsonscan.Kind(raw) == '[' {
		for item := range jsonscan.Elements(raw) {
			s, err := c.schema(item, n.home)
			if err != nil {
				return nil, at(strconv.Itoa(len(list)), err)
			}
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("got %s, want a list of schemas", shown(raw))
	}
	return list, nil
}

func (c *compiler) schemaMap(n *node, raw []byte) ([]property, error) {
	if err := isObject(raw); err != nil {
		return nil, err
	}
	var named []property
	for key, value := range jsonscan.Members(raw) {
		s, err := c.schema(value, n.home)
		if err != nil {
			return nil, at(string(key), err)
		}
		named = append(named, property{name: string(key), node: s})
	}
	return named, nil
}

func parseTypes(raw []byte) (typeSet, error) {
	names := []string{""}
	var err error
	if jsonscan.Kind(raw) == '[' {
		names, err = stringList(raw)
	} else {
		names[0], err = stringValue(raw)
	}
	if err != nil {
		return 0, err
	}
	var set typeSet
	for _, name := range names {
		i := slices.Index(typeNames, name)
		if i < 0 {
			return 0, fmt.Errorf("got %.40q, want one of %s", name, shortList(typeNames))
		}
		set |= 1 << i
	}
	if set == 0 {
		return 0, fmt.Errorf("got no type, want one or more of %s", shortList(typeNames))
	}
	return set, nil
}

func (c *compiler) parseEnum(n *node, raw []byte) error {
	if jsonscan.Kind(raw) != '[' {
		return fmt.Errorf("got %s, want a list of values", shown(raw))
	}
	values := slices.Collect(jsonscan.Elements(raw))
	if len(values) > MaxEnum {
		return fmt.Errorf("%d values, want at most %d", len(values), MaxEnum)
	}
	n.addEnum(values)
	return nil
}

// parsePattern compiles a regular expression with RE2, whose time is linear in the text.
func (c *compiler) parsePattern(raw []byte) (*pattern, error) {
	text, err := stringValue(raw)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes, want at most %d", len(text), MaxPattern)
	}
	text = re2Escapes(text)
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q is not supported: %w", text, err)
	}
	cost, size := measure(parsed)
	if c.patterns += size; c.patterns > maxPatterns {
		return nil, fmt.Errorf("pattern %.80q: all patterns together are too large, want fewer repetitions and classes",
			text)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q is not supported: %w", text, err)
	}
	return &pattern{re, cost}, nil
}

// maxPatterns limits the compiled patterns of a schema, in instructions and class bounds, to a few
// megabytes. A bound on their length is not enough: x{1000} is a thousand instructions.
const maxPatterns = 100_000

// re2Escapes returns a pattern with \u1234 in the form of RE2, \x{1234}.
func re2Escapes(pattern string) string {
	const length = len(`\u1234`)
	var b strings.Builder
	for i := 0; i < len(pattern); {
		end := i + 1
		if pattern[i] == '\\' && end < len(pattern) {
			end++
		}
		if pattern[i:end] == `\u` && i+length <= len(pattern) {
			if _, err := strconv.ParseUint(pattern[end:i+length], 16, 16); err == nil {
				b.WriteString(`\x{` + pattern[end:i+length] + "}")
				i += length
				continue
			}
		}
		b.WriteString(pattern[i:end])
		i = end
	}
	return b.String()
}

// measure estimates, without expanding an expression, the number of its instructions and their
// size: a class is a single instruction with many bounds.
func measure(re *syntax.Regexp) (instructions, size int) {
	instructions, size = 1, 1+len(re.Rune)
	if re.Op == syntax.OpLiteral {
		instructions = len(re.Rune)
	}
	for _, sub := range re.Sub {
		i, s := measure(sub)
		instructions += i
		size += s
	}
	if re.Op == syntax.OpRepeat {
		times := max(re.Min, re.Max, 1)
		return instructions * times, size * times
	}
	return instructions, size
}

func parseBound(raw []byte) (*bound, error) {
	if jsonscan.Kind(raw) != '0' {
		return nil, fmt.Errorf("got %s, want a number", shown(raw))
	}
	return &bound{parseDecimal(nil, raw), string(raw)}, nil
}

func countValue(raw []byte) (int, error) {
	d := parseDecimal(nil, raw)
	if jsonscan.Kind(raw) != '0' || !d.isInteger() || d.sign() < 0 {
		return 0, fmt.Errorf("got %s, want an integer of at least 0", shown(raw))
	}
	const longest = 15
	if d.exp > longest {
		return math.MaxInt, nil
	}
	return strconv.Atoi(string(d.append(nil)))
}

func stringValue(raw []byte) (string, error) {
	if jsonscan.Kind(raw) != '"' {
		return "", fmt.Errorf("got %s, want a string", shown(raw))
	}
	return jsonscan.Unquote(raw)
}

func stringList(raw []byte) ([]string, error) {
	if jsonscan.Kind(raw) != '[' {
		return nil, fmt.Errorf("got %s, want a list of strings", shown(raw))
	}
	var list []string
	seen := map[string]bool{}
	for item := range jsonscan.Elements(raw) {
		s, err := stringValue(item)
		if err != nil {
			return nil, err
		}
		if seen[s] {
			return nil, fmt.Errorf("%.80q occurs twice", s)
		}
		seen[s] = true
		list = append(list, s)
	}
	return list, nil
}

func isObject(raw []byte) error {
	if jsonscan.Kind(raw) != '{' {
		return fmt.Errorf("got %s, want an object", shown(raw))
	}
	return nil
}
