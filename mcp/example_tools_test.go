package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type place struct {
	City string `json:"city" jsonschema:"name of a city"`
}

type forecast struct {
	Degrees int    `json:"degrees" jsonschema:"in Celsius"`
	Sky     string `json:"sky" jsonschema:"enum=clear|cloudy"`
}

// Programs get the value, by its output schema, and the model gets a sentence.
func ExampleStructured() {
	ctx := context.Background()
	s := mcp.NewServer("weather", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "forecast"},
		func(_ context.Context, in place) (mcp.Structured[forecast], error) {
			return mcp.Structured[forecast]{
				Value:   forecast{Degrees: 7, Sky: "clear"},
				Content: []mcp.ContentBlock{mcp.Text("It stays cold and clear in " + in.City + ".")},
			}, nil
		})
	c, err := mcp.Connect(ctx, mcp.InMemory(s), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := mcp.CallTool[mcp.Structured[forecast]](ctx, c, "forecast", place{City: "Oslo"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Value.Degrees)
	fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	// Output:
	// 7
	// It stays cold and clear in Oslo.
}

// The cities are known only when the program runs.
func ExampleAddTool_changedSchema() {
	var schema map[string]any
	if err := json.Unmarshal(jsonschema.For[place]().JSON(), &schema); err != nil {
		log.Fatal(err)
	}
	city := schema["properties"].(map[string]any)["city"].(map[string]any)
	city["enum"] = []string{"Oslo", "Rome"}
	adjusted, err := json.Marshal(schema)
	if err != nil {
		log.Fatal(err)
	}
	s := mcp.NewServer("weather", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "forecast", InputSchema: adjusted},
		func(_ context.Context, in place) (string, error) { return "It stays cold in " + in.City + ".", nil })
	fmt.Println(string(jsonschema.For[place]().JSON()))
	// Output:
	// {"type":"object","properties":{"city":{"type":"string","description":"name of a city"}},"required":["city"],"additionalProperties":false}
}

// The tools come from a file, which may be read again while clients are connected.
func ExampleSetTool() {
	ctx := context.Background()
	s := mcp.NewServer("files", "1.0.0", nil)
	load := func(file string) {
		var tool mcp.Tool
		if err := json.Unmarshal([]byte(file), &tool); err != nil {
			log.Fatal(err)
		}
		_, err := mcp.SetTool(s, &tool, func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(tool.Title + string(args))}}, nil
		})
		fmt.Println("set:", err)
	}
	load(`{"name": "greet", "title": "Hello ", "inputSchema": {"type": "object"}}`)
	load(`{"name": "greet", "title": "Goodbye ", "inputSchema": {"type": "object"}}`)
	load(`{"name": "bad", "inputSchema": {"type": "array"}}`)

	c, err := mcp.Connect(ctx, mcp.InMemory(s), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(mcp.CallTool[string](ctx, c, "greet", map[string]int{"n": 1}))

	if tool, ok := mcp.Registered[mcp.Tool](s, "greet"); ok {
		tool.Remove()
	}
	tools, err := mcp.Collect(c.Tools(ctx))
	fmt.Println(len(tools), err)
	// Output:
	// set: <nil>
	// set: <nil>
	// set: mcp: tool "bad": input schema: its type is "array", want "object"
	// Goodbye {"n":1} <nil>
	// 0 <nil>
}

func ExampleCollect() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	tools, err := mcp.Collect(c.Tools(ctx))
	fmt.Println(len(tools), err)
	// Output: 3 <nil>
}

// A struct is sent as JSON, with the MIME type application/json.
func ExampleAddResource_json() {
	ctx := context.Background()
	s := mcp.NewServer("weather", "1.0.0", nil)
	mcp.AddResource(s, &mcp.Resource{URI: "weather://oslo", Name: "oslo"},
		func(context.Context, string) (forecast, error) { return forecast{7, "clear"}, nil })
	c, err := mcp.Connect(ctx, mcp.InMemory(s), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.ReadResource(ctx, "weather://oslo")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Contents[0].MIMEType, res.Contents[0].Text)
	// Output: application/json {"degrees":7,"sky":"clear"}
}
