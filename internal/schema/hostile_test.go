package schema_test

import (
	stdjson "encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// hostileSchemas are invalid or malicious schemas. All are refused.
var hostileSchemas = []string{
	``, `null`, `[]`, `"object"`, `{"type":"object"}{}`, `{"type":"object","type":"array"}`,
	`{"properties":{"a":null}}`, `{"allOf":[]}`, `{"anyOf":{}}`, `{"type":"text"}`, `{"type":[]}`, `{"required":["a","a"]}`, `{"required":"a"}`,
	`{"minimum":"1"}`, `{"multipleOf":0}`, `{"multipleOf":-1}`, `{"multipleOf":1.234567890123456789}`, `{"minLength":1.5}`, `{"minItems":-1}`,
	`{"uniqueItems":1}`, `{"enum":{}}`, `{"properties":[]}`, `{"dependentRequired":{"a":"b"}}`, `{"$id":1}`, `{"$ref":1}`, `{"$id":"#a"}`,
	`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`, `{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, `{"$ref":"%zz"}`,
	`{"$ref":"https://example.com/schema.json"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"other.json"}`, `{"$ref":"#/$defs/none"}`,
	`{"$ref":"#none"}`, `{"$ref":"#/type","type":"object"}`, `{"$ref":"#"}`, `{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#"}}}}`,
	`{"dependentSchemas":{"a":{"$ref":"#"}}}`, `{"$dynamicRef":"https://example.com#a"}`,
	`{"pattern":"("}`, `{"pattern":"(?=a)"}`, `{"pattern":"a{1001}"}`, `{"patternProperties":{"\\1":{}}}`, `{"pattern":7}`,
	`{"$schema":"http://json-schema.org/draft-04/schema#"}`, `{"$schema":7}`,
	`{"$defs":{"a":{"$schema":"http://json-schema.org/draft-07/schema#"}}}`,
}

// Requirement: SCH-05, SCH-14
func TestInvalidSchemasAreRefused(t *testing.T) {
	for _, text := range hostileSchemas {
		if _, err := schema.Compile(stdjson.RawMessage(text)); err == nil || !strings.HasPrefix(err.Error(), "schema: ") {
			t.Errorf("%s: got %v, want an error of the schema", text, err)
		}
	}
}

// Requirement: SCH-05, SCH-12
func TestErrorsNameTheKeyword(t *testing.T) {
	for text, want := range map[string]string{
		`{"properties":{"a/b":{"anyOf":[{},{"minimum":"1"}]}}}`: `schema: /properties/a~1b/anyOf/1/minimum: got the string "1", want a number`,
		`{"$schema":"urn:x"}`:      `schema: /$schema: dialect "urn:x" is not supported, want JSON Schema 2020-12 or draft-07`,
		`{"$ref":"http://a/b"}`:    `schema: reference "http://a/b" is to another document, which is not fetched`,
		`{"$ref":"#/$defs/a"}`:     `schema: reference "#/$defs/a" has no target`,
		`{"anyOf":[{"$ref":"#"}]}`: `schema: the references are circular`,
	} {
		if _, err := schema.Compile(stdjson.RawMessage(text)); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// Requirement: SCH-12, SCH-13
func TestNothingIsFetched(t *testing.T) {
	var dialled atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		dialled.Add(1)
		fmt.Fprint(w, `{"type":"string"}`)
	}))
	defer server.Close()
	for _, text := range []string{
		`{"$ref":%q}`, `{"$id":%q,"$ref":"x.json"}`, `{"$dynamicRef":%q}`, `{"$schema":%q}`, `{"properties":{"a":{"$ref":%q}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"$ref":%q}}}`,
	} {
		if _, err := schema.Compile(stdjson.RawMessage(fmt.Sprintf(text, server.URL))); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	s := compile(t, fmt.Sprintf(`{"$id":%q,"type":"object","$comment":%q,"format":"uri"}`, server.URL, server.URL))
	if err := s.Validate([]byte(`{}`)); err != nil {
		t.Error(err)
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("got %d requests, want 0", n)
	}
}

// Requirement: SCH-15
func TestSizeOfSchemasIsLimited(t *testing.T) {
	repeat := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	nested := func(n int) string {
		return strings.Repeat(`{"not":`, n-1) + `{}` + strings.Repeat(`}`, n-1)
	}
	for name, c := range map[string]struct {
		most func(n int) string
		n    int
	}{
		"bytes":    {func(n int) string { return `{"title":"` + strings.Repeat("x", n-12) + `"}` }, schema.MaxBytes},
		"depth":    {nested, schema.MaxDepth},
		"nodes":    {func(n int) string { return `{"anyOf":[` + repeat("true", n-1) + `]}` }, schema.MaxNodes},
		"enum":     {func(n int) string { return `{"enum":[` + repeat("1", n) + `]}` }, schema.MaxEnum},
		"pattern":  {func(n int) string { return `{"pattern":"` + strings.Repeat("x", n) + `"}` }, schema.MaxPattern},
		"patterns": {func(n int) string { return `{"allOf":[` + repeat(`{"pattern":"x{1000}"}`, n) + `]}` }, 33},
	} {
		if _, err := schema.Compile(stdjson.RawMessage(c.most(c.n))); err != nil {
			t.Errorf("%s: %d: %v", name, c.n, err)
		}
		if _, err := schema.Compile(stdjson.RawMessage(c.most(c.n + 1))); err == nil {
			t.Errorf("%s: %d: no error", name, c.n+1)
		}
	}
}

// Expensive validations end when the step budget is used up.
//
// Requirement: SCH-15
func TestValidationStepsAreLimited(t *testing.T) {
	repeat := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	var chain, names, needs strings.Builder
	for i := range 40 {
		fmt.Fprintf(&chain, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	for i := range 5_000 {
		fmt.Fprintf(&names, `"property number %d":0,`, i)
		fmt.Fprintf(&needs, `"property number %d":["property number 4999"],`, i)
	}
	all := `{"$ref":"#/$defs/a0","$defs":{` + chain.String() + `"a40":{}}}`
	anyOf := strings.Replace(strings.ReplaceAll(all, "allOf", "anyOf"), `"a40":{}`, `"a40":false`, 1)
	text := `"` + strings.Repeat("a", 1<<20) + `"`
	items := "[" + repeat("1", 1<<20) + "]"
	object := "{" + strings.TrimSuffix(names.String(), ",") + "}"
	for name, c := range map[string]struct{ schema, value string }{
		"allOf":        {all, `{}`},
		"anyOf":        {anyOf, `{}`},
		"dynamic loop": {`{"$id":"a","$dynamicAnchor":"x","$ref":"b","$defs":{"b":{"$id":"b","$dynamicRef":"#x","$defs":{"x":{"$dynamicAnchor":"x"}}}}}`, `{}`},
		"pattern":      {`{"pattern":"^(a?){500}a{500}$"}`, text},
		"text":         {`{"anyOf":[` + repeat(`{"minLength":2000000}`, 1000) + `]}`, text},
		"white space":  {`{"anyOf":[` + repeat(`{"minItems":1}`, 1000) + `]}`, `[` + strings.Repeat(" ", 1<<20) + `]`},
		"items":        {`{"items":{"type":"integer","minimum":0}}`, items},
		"contains":     {`{"contains":{"type":"string"}}`, items},
		"unique":       {`{"uniqueItems":true}`, items},
		"names":        {`{"anyOf":[` + repeat(`{"required":["a"],"patternProperties":{"^x+$":true}}`, 500) + `]}`, object},
		"needs":        {`{"dependentRequired":{` + strings.TrimSuffix(needs.String(), ",") + `}}`, object},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, c.schema)
			err := s.Validate([]byte(c.value))
			if err == nil || !strings.Contains(err.Error(), "takes more than 1000000 steps") {
				t.Errorf("got %v, want the step limit", err)
			}
			checkSteps(t, s, c.value)
		})
	}
}
