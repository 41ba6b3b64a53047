package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type none struct{}

// pixel is a PNG of one pixel, beep a WAV file without a sample.
var (
	pixel = decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	beep  = decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
)

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func embedded(uri, mimeType, text string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: mimeType, Text: text}}
}

// contentTool registers a tool without arguments that always returns the same content.
func contentTool(s *mcp.Server, name, description string, content ...mcp.ContentBlock) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description},
		func(context.Context, none) ([]mcp.ContentBlock, error) { return content, nil })
}

func addContentTools(s *mcp.Server) {
	contentTool(s, "test_simple_text", "Returns a text.", mcp.Text("This is a simple text response for testing."))
	contentTool(s, "test_image_content", "Returns an image.", &mcp.ImageContent{Data: pixel, MIMEType: "image/png"})
	contentTool(s, "test_audio_content", "Returns a sound.", &mcp.AudioContent{Data: beep, MIMEType: "audio/wav"})
	contentTool(s, "test_embedded_resource", "Returns an embedded resource.",
		embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))
	contentTool(s, "test_multiple_content_types", "Returns content of several types.",
		mcp.Text("Multiple content types test:"),
		&mcp.ImageContent{Data: pixel, MIMEType: "image/png"},
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
	mcp.AddTool(s, &mcp.Tool{Name: "test_error_handling", Description: "Returns an error."},
		func(context.Context, none) (string, error) {
			return "", errors.New("this tool intentionally returns an error for testing")
		})
	mcp.AddTool(s, &mcp.Tool{
		Name:        "json_schema_2020_12_tool",
		Description: "Has a schema with many keywords of JSON Schema 2020-12.",
		InputSchema: json.RawMessage(schema202012),
	}, func(context.Context, json.RawMessage) (string, error) { return "accepted", nil })
	type region struct {
		Region string `json:"region,omitempty" jsonschema:"the region,header=Region"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_x_mcp_header", Description: "Has an argument that is also in a header."},
		func(_ context.Context, in region) (string, error) { return "region: " + in.Region, nil })
}

const schema202012 = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "$defs": {
    "address": {
      "$anchor": "addressDef",
      "type": "object",
      "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
    }
  },
  "properties": {
    "name": {"type": "string"},
    "address": {"$ref": "#/$defs/address"},
    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    "phone": {"type": "string"},
    "email": {"type": "string"}
  },
  "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
  "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
  "then": {"required": ["phone"]},
  "else": {"required": ["email"]},
  "additionalProperties": false
}`
