package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Schema returns the JSON Schema of configuration files whose settings s describes, for editors and
// validators. It describes the common names of members, not the other names that [File.Server] accepts.
// Its dialect is 2020-12.
func Schema(s Section) json.RawMessage {
	open := func(t reflect.Type) string { // with unknown members
		s, err := schema.For(t)
		if err != nil {
			panic(err) // of the tags in this file
		}
		return strings.ReplaceAll(string(s.JSON()), `"additionalProperties":false`, `"additionalProperties":true`)
	}
	entry := strings.Replace(open(reflect.TypeFor[entryJSON]()), `"command":{"type":"string",`,
		`"command":{"type":["string","array"],"items":{"type":"string"},`, 1)
	settings := `{"description":"settings of patchbay gateway",` + string(schemaOf(s).JSON()[1:])
	return json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
		`"$id":"https://raw.githubusercontent.com/patchbay-mcp/patchbay/main/docs/patchbay.schema.json",` +
		`"title":"MCP servers","type":"object","properties":{` +
		`"mcpServers":{"type":"object","description":"servers by name","additionalProperties":` + entry + `},` +
		`"servers":{"$ref":"#/properties/mcpServers"},` +
		`"inputs":{"type":"array","description":"values that the user is asked for","items":` +
		open(reflect.TypeFor[inputJSON]()) + `},"patchbay":` + settings +
		`},"anyOf":[{"required":["mcpServers"]},{"required":["servers"]}]}`)
}

// entryJSON is the JSON of a server, for the schema.
type entryJSON struct {
	Type string `json:"type,omitzero" jsonschema:"enum=stdio|http|streamable-http|streamableHttp|sse|local|remote"`

	Command string `json:"command,omitzero" jsonschema:"program to start; an array also has arguments"`

	Args []string `json:"args,omitzero" jsonschema:"arguments, which no shell reads"`

	Env map[string]any `json:"env,omitzero" jsonschema:"variables of the command: strings, numbers, booleans"`

	EnvFile string `json:"envFile,omitzero" jsonschema:"file of lines NAME=value with variables of the command"`

	Dir string `json:"cwd,omitzero" jsonschema:"working directory of the command, relative to the file"`

	URL string `json:"url,omitzero" jsonschema:"URL of the server"`

	Header map[string]any `json:"headers,omitzero" jsonschema:"additional HTTP headers"`

	HeaderCommand string `json:"headersHelper,omitzero" jsonschema:"command line that prints headers as a JSON object"`

	AllowedTools []string `json:"allowedTools,omitzero" jsonschema:"patterns of the only tools that are used"`

	ExcludedTools []string `json:"excludedTools,omitzero" jsonschema:"patterns of tools that are not used"`

	Disabled bool `json:"disabled" jsonschema:"do not use the server,default=false"`
}

// inputJSON is the JSON of an input, for the schema.
type inputJSON struct {
	ID string `json:"id" jsonschema:"name in ${input:ID},pattern=^[A-Za-z0-9._-]{1,200}$"`

	Type string `json:"type" jsonschema:"a text or an option,enum=promptString|pickString,default=promptString"`

	Description string `json:"description,omitzero" jsonschema:"what to ask the user"`

	Default string `json:"default,omitzero" jsonschema:"value of an empty answer"`

	Password bool `json:"password" jsonschema:"do not show the answer,default=false"`

	Options []string `json:"options,omitzero" jsonschema:"the only valid answers"`
}

// rootsSchema describes the member roots, which no Go type describes.
const rootsSchema = `"roots":{"anyOf":[{"type":"string","enum":["none","pass"]},` +
	`{"type":"array","items":{"type":"string","pattern":"^file:///"},"maxItems":100}],`

// toolRatesSchema describes the values of the member toolRates: the tag of a map cannot specify a format.
const (
	toolRates       = `"description":"rates of tools by caller, by original name",`
	toolRatesAny    = toolRates + `"additionalProperties":{"type":"string"}`
	toolRatesSchema = toolRates + `"additionalProperties":{"type":"string","pattern":"` + ratePattern + `"}`
)

// schemas contains compiled schemas by the types of their sections, whose number is limited in a program.
var schemas sync.Map

// schemaOf returns the compiled schema of the member patchbay.
func schemaOf(s Section) *schema.Schema {
	t := reflect.TypeOf(s)
	if cached, ok := schemas.Load(t); ok {
		return cached.(*schema.Schema)
	}
	compiled, err := schema.For(t)
	if err == nil {
		special := strings.NewReplacer(`"roots":{`, rootsSchema, toolRatesAny, toolRatesSchema)
		compiled, err = schema.Compile([]byte(formats.Replace(special.Replace(string(compiled.JSON())))))
	}
	if err != nil {
		panic(err) // of the tags of the section
	}
	schemas.Store(t, compiled)
	return compiled
}

// settingWords replaces texts of the schema in errors.
var settingWords = strings.NewReplacer(
	"a string that matches the regular expression "+durationPattern, `a duration such as "90s" or "10m"`,
	"a string that matches the regular expression "+sizePattern, `a size such as "512MiB"`,
	"a string that matches the regular expression "+ratePattern, wantRate,
	"a string that matches the regular expression ^file:///", `a URI such as "file:///srv/app"`,
	"a string that matches the regular expression ^https?://", `a URL such as "https://mcp.example.com"`,
	"want a string or an array", `want "none", "pass" or an array of file URIs`,
	"unknown property", "unknown member", "known are", "want one of")
