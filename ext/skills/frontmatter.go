package skills

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v4"
)

// Limits of frontmatter.
const (
	maxFrontmatter      = 64 << 10 // bytes
	maxFrontmatterDepth = 32       // of nested sequences and mappings
	// maxFrontmatterNodes limits the number of values after aliases are expanded.
	maxFrontmatterNodes = 4096
	// maxDigits limits integers, which are converted exactly.
	maxDigits = 64
)

// splitFrontmatter returns the YAML at the beginning of a SKILL.md, and the text after it. Spec:
// Agent Skills, SKILL.md format.
func splitFrontmatter(file []byte) (front, body []byte, err error) {
	if !utf8.Valid(file) {
		return nil, nil, errors.New("the file is not UTF-8")
	}
	file = bytes.TrimPrefix(file, []byte("\uFEFF"))
	first, rest, _ := bytes.Cut(file, []byte("\n"))
	if string(bytes.TrimSuffix(first, []byte("\r"))) != "---" {
		return nil, nil, errors.New(`the file has no frontmatter: the first line is not "---"`)
	}
	for at := 0; at <= len(rest) && at <= maxFrontmatter; {
		line, _, more := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" && bytes.HasPrefix(line, []byte("---")) {
			return rest[:at], rest[min(at+len(line)+1, len(rest)):], nil
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return nil, nil, fmt.Errorf(`the frontmatter has no end: want a line "---" within %d bytes`, maxFrontmatter)
}

// parseFrontmatter returns the frontmatter of a SKILL.md as a JSON object, with the members in the
// order of the file, and the text after it. Values are resolved by the core schema of YAML 1.2, in
// which dates and "yes" are strings. Spec: skills.mdx, Frontmatter; YAML 1.2.2, section 10.3.
func parseFrontmatter(file []byte) (object json.RawMessage, body []byte, err error) {
	front, body, err := splitFrontmatter(file)
	if err != nil {
		return nil, nil, err
	}
	if bytes.ContainsAny(front, "\u0085\u2028\u2029") {
		return nil, nil, errors.New("the frontmatter has a Unicode line separator, on which YAML parsers differ")
	}
	var doc yaml.Node
	if err := yaml.Load(front, &doc, yaml.WithUniqueKeys()); err != nil {
		return nil, nil, fmt.Errorf("the frontmatter is not YAML: %w", err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, nil, errors.New("the frontmatter is not a mapping")
	}
	var c converter
	if object, err = c.value(nil, doc.Content[0], 0); err != nil {
		return nil, nil, fmt.Errorf("the frontmatter: %w", err)
	}
	return object, body, nil
}

// A converter converts YAML to JSON, within limits.
type converter struct{ nodes int }

func (c *converter) value(dst []byte, n *yaml.Node, depth int) ([]byte, error) {
	if c.nodes++; c.nodes > maxFrontmatterNodes {
		return nil, fmt.Errorf("more than %d values", maxFrontmatterNodes)
	}
	if depth > maxFrontmatterDepth {
		return nil, fmt.Errorf("line %d: more than %d levels", n.Line, maxFrontmatterDepth)
	}
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains([]string{"!!str", "!!map", "!!seq"}, n.ShortTag()) {
		return nil, fmt.Errorf("line %d: the tag %.64q has no equivalent in JSON", n.Line, n.Tag)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(dst, n.Alias, depth+1)
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, item := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = c.value(dst, item, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case yaml.MappingNode:
		return c.mapping(dst, n, depth)
	case yaml.ScalarNode:
		return appendScalar(dst, n)
	}
	return nil, fmt.Errorf("line %d: not a value", n.Line)
}

func (c *converter) mapping(dst []byte, n *yaml.Node, depth int) ([]byte, error) {
	dst = append(dst, '{')
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode || isPlain(key) && isNull(key.Value):
			return nil, fmt.Errorf("line %d: the key is not a string", key.Line)
		case isPlain(key) && key.Value == "<<":
			return nil, fmt.Errorf("line %d: the key << (merge) is not part of YAML 1.2", key.Line)
		case seen[key.Value]:
			return nil, fmt.Errorf("line %d: duplicate key %.64q", key.Line, key.Value)
		}
		seen[key.Value] = true
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendString(dst, key.Value); err != nil {
			return nil, err
		}
		if dst, err = c.value(append(dst, ':'), n.Content[i+1], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendString(dst []byte, s string) ([]byte, error) { return jsontext.AppendQuote(dst, s) }

// isPlain reports whether a scalar contains neither quotes nor a tag, and may be other than a
// string.
func isPlain(n *yaml.Node) bool {
	const text = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle |
		yaml.TaggedStyle
	return n.Style&text == 0
}

func isNull(s string) bool { return slices.Contains([]string{"", "~", "null", "Null", "NULL"}, s) }

// Patterns of plain scalars that are not strings.
var (
	integer   = regexp.MustCompile(`^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	float     = regexp.MustCompile(`^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$`)
	notFinite = regexp.MustCompile(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

func appendScalar(dst []byte, n *yaml.Node) ([]byte, error) {
	s := n.Value
	switch {
	case !isPlain(n):
		return appendString(dst, s)
	case isNull(s):
		return append(dst, "null"...), nil
	case slices.Contains([]string{"true", "True", "TRUE"}, s):
		return append(dst, "true"...), nil
	case slices.Contains([]string{"false", "False", "FALSE"}, s):
		return append(dst, "false"...), nil
	case integer.MatchString(s):
		return appendInteger(dst, n)
	case float.MatchString(s):
		f, _, err := big.ParseFloat(s, 10, 53, big.ToNearestEven)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		v, _ := f.Float64()
		if math.IsInf(v, 0) {
			return nil, fmt.Errorf("line %d: the number %.64s is too large", n.Line, s)
		}
		text, err := jsonv2.Marshal(v)
		return append(dst, text...), err
	case notFinite.MatchString(s):
		return nil, fmt.Errorf("line %d: %s cannot be represented in JSON", n.Line, s)
	}
	return appendString(dst, s)
}

func appendInteger(dst []byte, n *yaml.Node) ([]byte, error) {
	digits, base := n.Value, 10
	switch {
	case strings.HasPrefix(digits, "0o"):
		digits, base = digits[2:], 8
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	}
	if len(digits) > maxDigits {
		return nil, fmt.Errorf("line %d: the number has %d digits, want at most %d", n.Line, len(digits), maxDigits)
	}
	v, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return nil, fmt.Errorf("line %d: invalid number %.64q", n.Line, n.Value)
	}
	return v.Append(dst, 10), nil
}

// sameFrontmatter compares two objects, ignoring the order of members and the notation of numbers.
func sameFrontmatter(a, b json.RawMessage) bool {
	var x, y any
	return jsonv2.Unmarshal(a, &x) == nil && jsonv2.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
