package schema_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Requirement: HDR-18
func TestHeadersAreFoundThroughProperties(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"place":{"type":"object","properties":{"floor":{"type":"integer","x-mcp-header":"Floor"}}},
		"dry":{"type":["boolean","null"],"x-mcp-header":"X-Dry_Run.1"},
		"list":{"type":"array","items":{"type":"string"}}}}`)
	got, err := s.Headers()
	if err != nil {
		t.Fatal(err)
	}
	want := []schema.HeaderParam{
		{Path: []string{"region"}, Header: "Region", Type: "string"},
		{Path: []string{"place", "floor"}, Header: "Floor", Type: "integer"},
		{Path: []string{"dry"}, Header: "X-Dry_Run.1", Type: "boolean"}, // T-49
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Requirement: HDR-13
func TestInvalidHeadersAreRefused(t *testing.T) {
	property := func(members string) string { return `{"type":"object","properties":{"a":{` + members + `}}}` }
	for name, c := range map[string]struct{ schema, want string }{
		"empty":        {property(`"type":"string","x-mcp-header":""`), "a header name"},    // Requirement: HDR-13
		"control":      {property(`"type":"string","x-mcp-header":"a\n"`), "a header name"}, // Requirement: HDR-13
		"space":        {property(`"type":"string","x-mcp-header":"a b"`), "a header name"}, // Requirement: HDR-14
		"colon":        {property(`"type":"string","x-mcp-header":"a:b"`), "a header name"}, // Requirement: HDR-14
		"non-ASCII":    {property(`"type":"string","x-mcp-header":"é"`), "a header name"},   // Requirement: HDR-14
		"not a string": {property(`"type":"string","x-mcp-header":true`), "a header name"},
		// Requirement: HDR-15
		"twice": {`{"properties":{"a":{"type":"string","x-mcp-header":"Ab"},"b":{"type":"string","x-mcp-header":"aB"}}}`, "occurs twice"},
		// Requirement: HDR-16
		"number": {property(`"type":"number","x-mcp-header":"A"`), "string, integer or boolean"},
		// Requirement: HDR-16
		"object": {property(`"type":"object","x-mcp-header":"A"`), "string, integer or boolean"},
		// Requirement: HDR-16
		"any type":       {property(`"x-mcp-header":"A"`), "string, integer or boolean"},
		"T-49 two types": {property(`"type":["string","integer"],"x-mcp-header":"A"`), "string, integer or boolean"},
		// Requirement: HDR-18
		"root": {`{"type":"string","x-mcp-header":"A"}`, "string, integer or boolean"},
		// Requirement: HDR-18
		"items": {property(`"items":{"type":"string","x-mcp-header":"A"}`), "by properties alone"},
		// Requirement: HDR-18
		"additional": {`{"additionalProperties":{"type":"string","x-mcp-header":"A"}}`, "by properties alone"},
		// Requirement: HDR-18
		"composition": {`{"allOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`, "by properties alone"},
		// Requirement: HDR-18
		"conditional": {`{"then":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "by properties alone"},
		// Requirement: HDR-18
		"reference": {`{"properties":{"a":{"$ref":"#/$defs/d"}},"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, "by properties alone"},
		// Requirement: HDR-18
		"unused": {`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, "by properties alone"},
		// Requirement: HDR-18
		"unknown place": {`{"properties":{"a":{"$ref":"#/parts/d"}},"parts":{"d":{"type":"string","x-mcp-header":"A"}}}`, "by properties alone"},
	} {
		if got, err := compile(t, c.schema).Headers(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x-mcp-header") {
			t.Errorf("%s: got %v, %v, want %q", name, got, err, c.want)
		}
	}
	if got, err := compile(t, property(`"default":{"x-mcp-header":"A b"},"examples":[{"x-mcp-header":1}]`)).Headers(); err != nil || len(got) > 0 {
		t.Errorf("x-mcp-header inside a value: got %v, %v, want none", got, err)
	}
}
