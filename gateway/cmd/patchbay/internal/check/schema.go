package check

import (
	stdjson "encoding/json"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// targetJSON is the JSON of a target, for the schema. It is an entry of a configuration file.
type targetJSON struct {
	Type    string            `json:"type,omitzero" jsonschema:"transport,enum=stdio|http|sse"`
	Command string            `json:"command,omitzero" jsonschema:"program to start,minLength=1"`
	Args    []string          `json:"args,omitzero" jsonschema:"arguments, which no shell reads"`
	Env     map[string]string `json:"env,omitzero" jsonschema:"variables of the command"`
	EnvFile string            `json:"envFile,omitzero" jsonschema:"file of lines NAME=value with variables"`
	Dir     string            `json:"cwd,omitzero" jsonschema:"working directory, relative to this file"`
	URL     string            `json:"url,omitzero" jsonschema:"URL of the server,minLength=1"`
	Header  map[string]string `json:"headers,omitzero" jsonschema:"additional HTTP headers"`
}

// Schema returns the JSON Schema of files of saved calls, for editors and validators.
func Schema() stdjson.RawMessage {
	return stdjson.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
		`"$id":"https://raw.githubusercontent.com/patchbay-mcp/patchbay/main/docs/patchbay-checks.schema.json",` +
		`"title":"Saved calls of an MCP server",` + string(fileSchema().JSON()[1:]))
}

// fileSchema returns the schema of the types, with the types of values that Go keeps as text.
var fileSchema = sync.OnceValue(func() *jsonschema.Schema {
	revisions := `"description":"revisions of the protocol","items":{"type":"string"`
	types := strings.NewReplacer(
		revisions, revisions+`,"enum":["`+strings.Join(driver.Revisions(), `","`)+`"]`,
		`"target":{`, `"target":{"anyOf":[{"type":"string","minLength":1},`+
			string(jsonschema.For[targetJSON]().JSON())+`],`,
		`"params":{`, `"params":{"type":"object",`,
		`"schema":{`, `"schema":{"type":["object","boolean"],`)
	s, err := jsonschema.Compile([]byte(types.Replace(string(jsonschema.For[fileJSON]().JSON()))))
	if err != nil {
		panic(err) // of the tags in this package
	}
	return s
})
