package jsonschema_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func ExampleCompile() {
	schema, err := jsonschema.Compile(json.RawMessage(`{"type": "object", "required": ["city"]}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(schema.Validate([]byte(`{"city": "Nairobi"}`)))
	fmt.Println(schema.Validate([]byte(`{"town": "Nairobi"}`)))
	// Output:
	// <nil>
	// missing required property "city"
}

func ExampleInfer() {
	type place struct {
		City string `json:"city"`
		Days int    `json:"days,omitempty"`
	}
	schema, err := jsonschema.Infer(reflect.TypeFor[place]())
	if err != nil {
		panic(err)
	}
	var p place
	fmt.Println(string(schema.JSON()))
	fmt.Println(schema.Decode([]byte(`{"city": "Nairobi", "days": 2.0}`), &p), p)
	// Output:
	// {"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"],"additionalProperties":false}
	// <nil> {Nairobi 2}
}
