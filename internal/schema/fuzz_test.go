package schema_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// FuzzCompile compiles arbitrary schemas and validates arbitrary values.
func FuzzCompile(f *testing.F) {
	for _, s := range append(hostileSchemas, `{"type":"object","properties":{"a":{"type":"integer","minimum":1,"default":5}},"required":["a"]}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`,
		`{"$dynamicAnchor":"n","properties":{"x":{"$dynamicRef":"#n"}},"unevaluatedProperties":false}`,
		`{"anyOf":[{"type":"string","pattern":"^\\u0061+$"},{"enum":[1,1.0,{"a":[]}]}],"if":{"type":"array"},"then":{"contains":{"const":3},"uniqueItems":true}}`) {
		f.Add([]byte(s), []byte(`{"a":1,"b":["x",1e2,{"c":null}],"c":"😀\n"}`))
		f.Add([]byte(s), []byte(`[1,1.0,"a",[[]],{}]`))
	}
	f.Fuzz(func(t *testing.T, raw, instance []byte) {
		s, err := schema.Compile(raw)
		if err != nil {
			return
		}
		again, err := schema.Compile(s.JSON())
		if err != nil || !bytes.Equal(again.JSON(), s.JSON()) {
			t.Fatalf("the published form %s does not compile to itself: %v", s.JSON(), err)
		}
		_, _ = s.Headers()
		if jsonscan.Valid(instance, jsonscan.Limits{}) != nil {
			_ = s.Validate(instance) // must not panic, the result does not matter
			return
		}
		checkSteps(t, s, string(instance))
		checkRewrites(t, s, instance)
	})
}

// checkSteps checks that a validation stays within its budget. Steps are charged after a value has been read, so one
// value may exceed it, and each active call takes one more step to return.
func checkSteps(t *testing.T, s *schema.Schema, instance string) {
	t.Helper()
	if left := schema.StepsLeft(s, []byte(instance)); left < -len(instance)/16-2_000 {
		t.Errorf("%d steps for %d bytes", schema.MaxSteps-left, len(instance))
	}
}

// checkRewrites checks that rewriting returns JSON, is idempotent for DropNulls, and does not change its input.
func checkRewrites(t *testing.T, s *schema.Schema, instance []byte) {
	t.Helper()
	before := bytes.Clone(instance)
	for name, rewrite := range map[string]func([]byte) []byte{"ApplyDefaults": s.ApplyDefaults, "DropNulls": s.DropNulls} {
		out := rewrite(instance)
		if !bytes.Equal(instance, before) {
			t.Fatalf("%s changed its input", name)
		}
		if err := jsonscan.Valid(out, jsonscan.Limits{Depth: 2 * schema.MaxDepth, Keys: 1 << 20}); err != nil {
			t.Fatalf("%s of %s returned %s: %v", name, instance, out, err)
		}
		if twice := rewrite(out); name == "DropNulls" && !bytes.Equal(twice, out) {
			t.Fatalf("%s of %s returned %s, and again %s", name, instance, out, twice)
		}
	}
}

// FuzzVerdict compares validation of generated values and schemas with a second validator.
func FuzzVerdict(f *testing.F) {
	random := rand.New(rand.NewPCG(2020, 12))
	for range 256 {
		seed := make([]byte, 400)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed []byte) {
		g := &generator{seed: seed}
		text := fmt.Sprintf(`{"$defs":{"d":%s,"e":%s},%s}`, g.schema(2), g.schema(1), g.keywords(3))
		s, err := schema.Compile(stdjson.RawMessage(text))
		if err != nil && strings.Contains(err.Error(), "circular") {
			return
		}
		second, err2 := secondValidator(text)
		if err != nil || err2 != nil {
			t.Fatalf("schema %s\ngot %v\nsecond validator %v", text, err, err2)
		}
		for range 8 {
			instance := g.value(3)
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(instance))
			if err != nil {
				t.Fatalf("%s: %v", instance, err)
			}
			got, want := s.Validate([]byte(instance)), second.Validate(v)
			if (got == nil) != (want == nil) {
				t.Fatalf("schema %s\nvalue %s\ngot %v\nsecond validator %v", text, instance, got, want)
			}
			checkError(t, text, instance, got)
			checkRewrites(t, s, []byte(instance))
		}
	})
}

func secondValidator(text string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///schema", doc); err != nil {
		return nil, err
	}
	return c.Compile("mem:///schema")
}

// checkError checks that an error lists problems at existing paths.
func checkError(t *testing.T, text, instance string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	invalid, ok := err.(*schema.ValidationError)
	if !ok || len(invalid.Problems) == 0 || len(invalid.Problems) > 5 || strings.Contains(err.Error(), "does not match the schema") {
		t.Fatalf("schema %s\nvalue %s\ngot an error without problems: %v", text, instance, err)
	}
	var v any
	if err := stdjson.Unmarshal([]byte(instance), &v); err != nil {
		t.Fatal(err)
	}
	for _, p := range invalid.Problems {
		if !hasPath(v, p.Path) {
			t.Fatalf("schema %s\nvalue %s\npath %q does not exist", text, instance, p.Path)
		}
	}
}

func hasPath(v any, pointer string) bool {
	for _, step := range strings.Split(pointer, "/")[1:] {
		switch at := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = at[step]; !ok {
				return false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				return false
			}
			v = at[i]
		default:
			return false
		}
	}
	return true
}

// A generator builds schemas and values from bytes. It uses few names and numbers so that they often match.
type generator struct {
	seed []byte
	at   int
}

func (g *generator) pick(n int) int {
	if g.at >= len(g.seed) {
		return 0
	}
	g.at++
	return int(g.seed[g.at-1]) % n
}

func (g *generator) of(choices ...string) string { return choices[g.pick(len(choices))] }

func (g *generator) schema(depth int) string {
	if g.pick(12) == 0 {
		return g.of("true", "false")
	}
	return "{" + g.keywords(depth) + "}"
}

// keywords returns some members of a schema.
func (g *generator) keywords(depth int) string {
	var members []string
	seen := map[string]bool{}
	for range 1 + g.pick(4) {
		key, value := g.leaf()
		if depth > 0 && g.pick(3) > 0 {
			key, value = g.applicator(depth - 1)
		}
		if !seen[key] {
			seen[key] = true
			members = append(members, strconv.Quote(key)+":"+value)
		}
	}
	return strings.Join(members, ",")
}

func (g *generator) leaf() (key, value string) {
	switch g.pick(12) {
	case 0, 1, 2:
		types := []string{`"null"`, `"boolean"`, `"integer"`, `"number"`, `"string"`, `"array"`, `"object"`}
		i := g.pick(len(types))
		return "type", g.of(types[i], "["+types[i]+","+types[(i+1+g.pick(6))%len(types)]+"]")
	case 3:
		return "enum", "[" + g.value(1) + "," + g.value(1) + "]"
	case 4:
		return "const", g.value(2)
	case 5:
		return g.of("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), g.of("0", "1", "2.0", "1.5", "-1", "1e1")
	case 6:
		return "multipleOf", g.of("1", "2", "0.5", "1e-1", "3")
	case 7:
		return g.of("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"), g.of("0", "1", "2", "3.0")
	case 8:
		return "pattern", g.of(`"^a"`, `"b$"`, `"[0-9]+"`, `"^.$"`)
	case 9:
		return "required", g.of(`[]`, `["a"]`, `["a","b"]`, `["c"]`)
	case 10:
		return "dependentRequired", g.of(`{"a":["b"]}`, `{"b":["a","c"]}`, `{"a":[]}`)
	default:
		return "uniqueItems", g.of("true", "false")
	}
}

func (g *generator) applicator(depth int) (key, value string) {
	one := func() string { return g.schema(depth) }
	list := func() string { return "[" + one() + "," + one() + "]" }
	named := func() string {
		return `{"a":` + one() + "," + g.of(`"b"`, `"c"`) + ":" + one() + "}"
	}
	switch g.pick(16) {
	case 0, 1, 2:
		return "properties", named()
	case 3:
		return "patternProperties", `{"^[ab]$":` + one() + "}"
	case 4:
		return g.of("additionalProperties", "propertyNames"), one()
	case 5:
		return "unevaluatedProperties", g.of("false", one())
	case 6:
		return "unevaluatedItems", g.of("false", one())
	case 7:
		return "items", one()
	case 8:
		return "prefixItems", list()
	case 9:
		return "contains", one()
	case 10:
		return g.of("allOf", "anyOf", "oneOf"), list()
	case 11:
		return g.of("anyOf", "oneOf", "allOf"), list()
	case 12:
		return g.of("not", "if", "then", "else"), one()
	case 13:
		return g.of("if", "then", "else"), one()
	case 14:
		return "dependentSchemas", named()
	default:
		return "$ref", g.of(`"#/$defs/d"`, `"#/$defs/e"`, `"#"`)
	}
}

func (g *generator) value(depth int) string {
	kinds := 8
	if depth == 0 {
		kinds = 4
	}
	switch g.pick(kinds) {
	case 0:
		return g.of("null", "true", "false")
	case 1, 2:
		return g.of("0", "1", "2", "3", "-1", "1.5", "1.0", "1e1", "10", "0.1", "-0")
	case 3:
		return g.of(`""`, `"a"`, `"b"`, `"ab"`, `"\u0061"`, `"é"`, `"\ud83d\ude00"`, `"1"`, `"abc"`)
	case 4, 5:
		var items []string
		for range g.pick(4) {
			items = append(items, g.value(depth-1))
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		var members []string
		for _, key := range []string{`"a"`, `"b"`, `"\u0063"`, `"d"`} {
			if g.pick(2) == 1 {
				members = append(members, key+" : "+g.value(depth-1))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}
