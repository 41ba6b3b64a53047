package schema_test

import (
	"fmt"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

func ExampleFor() {
	type order struct {
		Item  string `json:"item" jsonschema:"what to buy, by its catalogue name"`
		Count int    `json:"count,omitempty" jsonschema:"how many,minimum=1,maximum=99,default=1"`
		Size  string `json:"size,omitempty" jsonschema:"the size,enum=small|medium|large"`
	}
	s, err := schema.For(reflect.TypeFor[order]())
	if err != nil {
		panic(err)
	}
	fmt.Println(string(s.JSON()))

	arguments := s.ApplyDefaults([]byte(`{"item":"shirt","size":"mediun"}`))
	fmt.Println(string(arguments))
	fmt.Println(s.Validate(arguments))

	var o order
	fmt.Println(schema.Decode([]byte(`{"item":"shirt","count":2.0}`), &o), o)
	// Output:
	// {"type":"object","properties":{"item":{"type":"string","description":"what to buy, by its catalogue name"},"count":{"type":"integer","description":"how many","minimum":1,"maximum":99,"default":1},"size":{"type":"string","description":"the size","enum":["small","medium","large"]}},"required":["item"],"additionalProperties":false}
	// {"item":"shirt","size":"mediun","count":1}
	// /size: got the string "mediun", want one of "small", "medium", "large" (did you mean "medium"?)
	// <nil> {shirt 2 }
}
