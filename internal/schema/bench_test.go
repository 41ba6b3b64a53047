package schema_test

import (
	"reflect"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

type echo struct {
	Message string `json:"message" jsonschema:"what to say"`
}

type search struct {
	Query   string   `json:"query" jsonschema:"what to look for,minLength=1,maxLength=200"`
	Limit   int      `json:"limit,omitempty" jsonschema:"how many,minimum=1,maximum=100,default=10"`
	Sort    string   `json:"sort,omitempty" jsonschema:"the order,enum=relevance|date|stars"`
	Labels  []string `json:"labels,omitempty" jsonschema:"only these,maxItems=20"`
	Private *bool    `json:"private,omitempty"`
	Range   *struct {
		From string `json:"from" jsonschema:"pattern=^\\d{4}-\\d\\d-\\d\\d$"`
		To   string `json:"to" jsonschema:"pattern=^\\d{4}-\\d\\d-\\d\\d$"`
	} `json:"range,omitempty"`
}

var searchArguments = []byte(`{"query":"validator in:name","limit":30,"sort":"stars","labels":["go","json","schema"],"private":false,` +
	`"range":{"from":"2026-01-01","to":"2026-11-21"}}`)

func BenchmarkValidate(b *testing.B) {
	for name, c := range map[string]struct {
		typ  reflect.Type
		data []byte
	}{
		"echo":   {reflect.TypeFor[echo](), []byte(`{"message":"hello, world"}`)},
		"search": {reflect.TypeFor[search](), searchArguments},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := schema.For(c.typ)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Validate(c.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var v search
		if err := schema.Decode(searchArguments, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEcho(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var v echo
		if err := schema.Decode([]byte(`{"message":"hello, world"}`), &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	s, err := schema.For(reflect.TypeFor[search]())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Compile(s.JSON()); err != nil {
			b.Fatal(err)
		}
	}
}
