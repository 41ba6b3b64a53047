package schema_test

import (
	stdjson "encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

func compile(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(stdjson.RawMessage(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// These texts are shown to models.
func TestProblemsStateValueAndRule(t *testing.T) {
	const shapes = `{"anyOf":[
		{"type":"object","properties":{"kind":{"const":"circle"},"radius":{"type":"number","minimum":0}},"required":["kind","radius"]},
		{"type":"object","properties":{"kind":{"const":"box"},"width":{"type":"number"},"height":{"type":"number"}},"required":["kind","width","height"]}]}`
	for name, c := range map[string]struct{ schema, value, want string }{
		"type":               {`{"type":"integer"}`, `"x"`, `got the string "x", want an integer`},
		"types":              {`{"type":["string","number","null"]}`, `{}`, `got an object, want a number, a string or null`},
		"quoted number":      {`{"properties":{"n":{"type":"integer"}}}`, `{"n":"42"}`, `/n: got the string "42", want an integer: write it without quotes`},
		"quoted fraction":    {`{"type":"integer"}`, `"4.5"`, `got the string "4.5", want an integer`},
		"fraction":           {`{"type":"integer"}`, `4.5`, `got the number 4.5, want an integer`},
		"missing":            {`{"properties":{"a":{"type":"string"}},"required":["a","b"]}`, `{}`, `missing required property "a" (a string); missing required property "b"`},
		"misspelt":           {`{"properties":{"message":{},"count":{}},"additionalProperties":false}`, `{"mesage":1}`, `/mesage: unknown property "mesage" (did you mean "message"?), known are message, count`},
		"case and hyphens":   {`{"properties":{"max_results":{}},"additionalProperties":false}`, `{"maxResults":1}`, `/maxResults: unknown property "maxResults" (did you mean "max_results"?), known are max_results`},
		"two unknown":        {`{"properties":{"a":{}},"additionalProperties":false}`, `{"xxx":1,"yyy":2}`, `/xxx: unknown property "xxx", known are a; /yyy: unknown property "yyy"`},
		"no properties":      {`{"additionalProperties":false}`, `{"x":1}`, `/x: unknown property "x", want no properties`},
		"unevaluated":        {`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"x":1}`, `/x: unknown property "x", want no properties`},
		"enum":               {`{"enum":["small","large",3]}`, `"smal"`, `got the string "smal", want one of "small", "large", 3 (did you mean "small"?)`},
		"const":              {`{"const":{"a":1}}`, `[1]`, `got an array, want {"a":1}`},
		"at least":           {`{"minimum":1}`, `0.5`, `got the number 0.5, want a number of at least 1`},
		"above":              {`{"exclusiveMinimum":1}`, `1`, `got the number 1, want a number above 1`},
		"below":              {`{"exclusiveMaximum":1e2}`, `100`, `got the number 100, want a number below 1e2`},
		"multiple":           {`{"multipleOf":0.01}`, `0.005`, `got the number 0.005, want a multiple of 0.01`},
		"short":              {`{"minLength":2}`, `"é"`, `got 1 character, want at least 2`},
		"long":               {`{"maxLength":2}`, `"\ud83d\ude00ab"`, `got 3 characters, want at most 2`},
		"pattern":            {`{"pattern":"^a+$"}`, `"b"`, `got the string "b", want a string that matches the regular expression ^a+$`},
		"few items":          {`{"minItems":2}`, `[1]`, `got 1 item, want at least 2`},
		"many properties":    {`{"maxProperties":1}`, `{"a":1,"b":2}`, `got 2 properties, want at most 1`},
		"same items":         {`{"uniqueItems":true}`, `[1,{"a":[1,2]},{"a":[1.0,2]}]`, `/2: duplicate item, want all items different`},
		"contains":           {`{"contains":{"type":"string"}}`, `[1]`, `got 0 items of the kind that it should contain, want at least 1`},
		"not":                {`{"not":{"type":"null"}}`, `null`, `got null, want anything but what the schema excludes by not`},
		"never":              {`{"properties":{"a":false}}`, `{"a":1}`, `/a: is not allowed here`},
		"name":               {`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, `/abc: got 3 characters, want at most 2`},
		"dependent":          {`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `missing property "b", required by "a"`},
		"escaped path":       {`{"additionalProperties":{"items":{"type":"null"}}}`, `{"a/b~c":[null,1]}`, `/a~1b~0c/1: got the number 1, want null`},
		"alternative types":  {`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `5`, `got the number 5, want a string or null`},
		"alternative values": {`{"oneOf":[{"const":"s","title":"Small"},{"const":"m"}]}`, `"x"`, `got the string "x", want one of "s", "m"`},
		"one alternative":    {`{"anyOf":[{"type":"string","maxLength":1},{"type":"null"}]}`, `"ab"`, `got 2 characters, want at most 1`},
		"tagged":             {shapes, `{"kind":"box","width":1}`, `missing required property "height" (a number)`},
		"wrong tag":          {shapes, `{"kind":"bux","width":1}`, `/kind: got the string "bux", want one of "circle", "box" (did you mean "box"?)`},
		"no tag":             {shapes, `{"radius":-1}`, `/radius: got the number -1, want a number of at least 0; missing required property "kind"`},
		"too many fit":       {`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `5`, `got the number 5, which fits more than one of 2 alternatives, want exactly one`},
		"none fits":          {`{"anyOf":[{"not":{}},{"not":{}}]}`, `5`, `got the number 5, want anything but what the schema excludes by not`},
		"then":               {`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, `missing required property "b"`},
		"long list":          {`{"enum":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22]}`, `0`, `got the number 0, want one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 2 more`},
		"five at most":       {`{"items":{"type":"null"}}`, `[1,2,3,4,5,6,7]`, `/0: got the number 1, want null; /1: got the number 2, want null; /2: got the number 3, want null; /3: got the number 4, want null; /4: got the number 5, want null`},
	} {
		t.Run(name, func(t *testing.T) {
			err := compile(t, c.schema).Validate([]byte(c.value))
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestProblemsStayShort(t *testing.T) {
	long := strings.Repeat("é", 50_000)
	for _, c := range [][2]string{
		{`{"type":"integer"}`, `"` + long + `"`},
		{`{"additionalProperties":false}`, `{"` + long + `":1}`},
		{`{"additionalProperties":{"type":"null"}}`, `{"` + long + `":1}`},
		{`{"enum":["` + long + `","x"]}`, `1`},
		{`{"minimum":` + strings.Repeat("9", 50_000) + `}`, `1`},
		{`{"maximum":1}`, strings.Repeat("9", 50_000)},
		{`{"required":["` + long + `"]}`, `{}`},
	} {
		err := compile(t, c[0]).Validate([]byte(c[1]))
		if err == nil || len(err.Error()) > 2_000 || !utf8.ValidString(err.Error()) {
			t.Errorf("%.40s: %d bytes: %.100v", c[0], len(err.Error()), err)
		}
	}
}

func TestNumbersAreExact(t *testing.T) {
	for _, c := range []struct {
		schema, value string
		valid         bool
	}{
		{`{"maximum":9007199254740992}`, `9007199254740993`, false},
		{`{"minimum":0.1}`, `0.1`, true},
		{`{"minimum":0.1}`, `0.09999999999999999999999999999`, false},
		{`{"maximum":-1e400}`, `-1e399`, false},
		{`{"maximum":-1e400}`, `-2e400`, true},
		{`{"multipleOf":0.1}`, `0.3`, true},
		{`{"multipleOf":0.1}`, `1e100`, true},
		{`{"multipleOf":7}`, `1e1000000000`, false},
		{`{"multipleOf":1e-300}`, `1e999999999999999999`, true},
		{`{"multipleOf":3}`, `111111111111111111111111111111111111111111111111111111`, true},
		{`{"type":"integer"}`, `1e400`, true},
		{`{"type":"integer"}`, `1.50e1`, true},
		{`{"type":"integer"}`, `1.55e1`, false},
		{`{"type":"integer"}`, `-0.0`, true},
		{`{"const":100}`, `1e2`, true},
		{`{"const":100}`, `100.000`, true},
		{`{"const":-0.0}`, `0`, true},
		{`{"const":5e-1}`, `0.5`, true},
		{`{"const":5}`, `0.5`, false},
		{`{"enum":[1e30]}`, `1000000000000000000000000000000`, true},
		{`{"const":1e30}`, `1e31`, false},
		{`{"const":5e-1}`, `5e0`, false},
		{`{"multipleOf":7}`, `7e1000000000`, true},
		{`{"multipleOf":576460752303423488}`, `1e59`, true},
		{`{"multipleOf":576460752303423488}`, `1e58`, false},
	} {
		if err := compile(t, c.schema).Validate([]byte(c.value)); (err == nil) != c.valid {
			t.Errorf("%s for %s: got %v, want valid %v", c.value, c.schema, err, c.valid)
		}
	}
}

func TestValidateAllocatesNothing(t *testing.T) {
	s, err := schema.For(reflect.TypeFor[search]())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, matchers of patterns are pooled
		allocs := testing.AllocsPerRun(100, func() {
			if err := s.Validate(searchArguments); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 0 {
			t.Errorf("%v allocations", allocs)
		}
	}
}

func TestRootType(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"object"}`:          "object",
		`{"type":["array"]}`:         "array",
		`{"type":["object","null"]}`: "",
		`{"properties":{}}`:          "",
		`true`:                       "",
		`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`: "",
	} {
		if got := compile(t, text).RootType(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Unknown keywords are published unchanged, except for white space.
//
// Requirement: SCH-11
func TestUnknownKeywordsAreKept(t *testing.T) {
	const text = ` {"$anchor": "a", "x-b":[1.0,  1e2,"\u00e9<>&"],"type" : "object","$defs":{"z":{"oneOf":[{}]}},"a":null}`
	const want = `{"$anchor":"a","x-b":[1.0,1e2,"\u00e9<>&"],"type":"object","$defs":{"z":{"oneOf":[{}]}},"a":null}`
	raw := []byte(text)
	s := compile(t, text)
	raw[3] = 'X'
	if string(s.JSON()) != want {
		t.Errorf("got  %s\nwant %s", s.JSON(), want)
	}
}

// Cases that the official suite does not cover.
//
// Requirement: SCH-01, SCH-03, SCH-04
func TestCasesBeyondTheSuite(t *testing.T) {
	var members []string
	for i := range 300 {
		members = append(members, `"`+strings.Repeat("p", i+1)+`":1`)
	}
	many := "{" + strings.Join(members, ",") + "}"
	const both = `"$defs":{"n":{"type":"number"},"d":{"$dynamicAnchor":"d","minimum":5}}`
	for _, c := range []struct {
		schema, value string
		valid         bool
	}{
		{`{"anyOf":[{"patternProperties":{"^p+$":{}}}],"unevaluatedProperties":false}`, many, true},
		{`{"anyOf":[{"patternProperties":{"^p{1,299}$":{}}}],"unevaluatedProperties":false}`, many, false},
		{`{"$ref":"#/$defs/n","$dynamicRef":"#d",` + both + `}`, `5`, true},
		{`{"$ref":"#/$defs/n","$dynamicRef":"#d",` + both + `}`, `4`, false},
		{`{"$dynamicRef":"#d","$ref":"#/$defs/n",` + both + `}`, `4`, false},
		{`{"$dynamicRef":"#d","$ref":"#/$defs/n",` + both + `}`, `"x"`, false},
		{`{"dependencies":{"a":["b"]}}`, `{"a":1}`, true}, // not in 2020-12
		{`{"$schema":"http://json-schema.org/draft-07/schema","dependencies":{"a":["b"]}}`, `{"a":1}`, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema","prefixItems":[false],"$anchor":7}`, `[1]`, true},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"$id":"b"},"c":{"$ref":"b"}},"minimum":3}`, `1`, true},
		{`{"pattern":"^\\u00e9\\\\u$"}`, `"é\\u"`, true},
		{`{"const":"a\u0000\"b\\"}`, `"\u0061\u0000\u0022b\u005c"`, true},
		{`{"const":["a\",\"b"]}`, `["a","b"]`, false},
		{`{"const":{"a":1,"b":2}}`, ` { "b" : 2.0 , "\u0061" : 10e-1 } `, true},
		{`{"enum":["a","b"],"const":"b"}`, `"a"`, false},
		{`{"maxLength":1e99}`, `"a"`, true},
		{`{"properties":{"\u0061":false}}`, `{"a":1}`, false},
		{`{"not":{"$comment":"all","type":["string","number","object","array","boolean","null"]}}`, `0`, false},
	} {
		if err := compile(t, c.schema).Validate([]byte(c.value)); (err == nil) != c.valid {
			t.Errorf("%.60s for %s: got %v, want valid %v", c.value, c.schema, err, c.valid)
		}
	}
}
