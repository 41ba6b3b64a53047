package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The document in the repository describes the routes and their types; -update writes it.
func TestOpenAPIDocumentIsCurrent(t *testing.T) {
	var text bytes.Buffer
	if err := json.Indent(&text, newOpenAPI(), "", "  "); err != nil {
		t.Fatal(err)
	}
	mcptest.Golden(t, "openapi.json", text.String()+"\n")
}

// An object is a JSON object whose members are sorted.
type object = map[string]any

// newOpenAPI returns the OpenAPI document of the admin API. Its schemas are those of the Go types by which
// requests are decoded and responses are encoded.
func newOpenAPI() json.RawMessage {
	paths := map[string]object{}
	for _, r := range adminRoutes() {
		path := r.path
		if r.verb != "" {
			path += ":" + r.verb
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(r.method)] = r.operation(path)
	}
	return mustMarshal(object{
		"openapi":           "3.1.1",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info": object{"title": "Patchbay gateway admin API", "version": "1",
			"description": "Condition and control of a running gateway. It is served on a Unix socket of the user: a " +
				"request needs no key. Responses have no secrets of the configuration.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []object{{"url": "http://localhost" + adminPrefix,
			"description": "On the Unix socket that \"patchbay gateway status\" prints"}},
		"security": []object{},
		"paths":    paths,
		"components": object{"schemas": object{"Problem": schemaOf(reflect.TypeFor[Problem]())},
			"responses": object{"Problem": object{"description": "The request was refused or has failed",
				"content": object{"application/problem+json": object{"schema": reference("schemas/Problem")}}}}},
	})
}

func reference(name string) object { return object{"$ref": "#/components/" + name} }

// schemaOf returns the schema of a type.
func schemaOf(t reflect.Type) json.RawMessage {
	s, err := jsonschema.Infer(t)
	if err != nil {
		panic(fmt.Sprintf("gateway: schema of %v: %v", t, err)) // of the tags in this package
	}
	return s.JSON()
}

var pathVariable = regexp.MustCompile(`\{([a-z]+)\}`)

// operation returns the operation of a route.
func (r *adminRoute) operation(path string) object {
	o := object{"summary": r.summary, "operationId": r.operationID(path), "responses": r.responses()}
	var parameters []object
	for _, m := range pathVariable.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true,
			"schema": object{"type": "string"}})
	}
	parameters = append(parameters, r.parameters()...)
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if r.request != nil {
		o["requestBody"] = object{"required": !r.optional,
			"content": object{"application/json": object{"schema": schemaOf(r.request)}}}
	}
	return o
}

// operationID returns a name for programs, such as postServersRestart.
func (r *adminRoute) operationID(path string) string {
	id := strings.ToLower(r.method)
	for _, word := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(path, -1) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// parameters returns those of the query.
func (r *adminRoute) parameters() (all []object) {
	text := schemaOf(r.query)
	properties, _ := rawjson.Get(text, "properties")
	required, _ := rawjson.Get(text, "required")
	for key, property := range rawjson.Members(properties) {
		name := string(key)
		description, _ := rawjson.Get(property, "description")
		p := object{"name": name, "in": "query", "schema": json.RawMessage(property),
			"required": bytes.Contains(required, []byte(`"`+name+`"`))}
		if text, err := rawjson.Unquote(description); err == nil {
			p["description"] = text
		}
		all = append(all, p)
	}
	if r.content == "text/event-stream" {
		all = append(all, object{"name": "Last-Event-ID", "in": "header", "schema": object{"type": "string"},
			"description": "id of the last event that was received"})
	}
	return all
}

// responses returns the responses of the route.
func (r *adminRoute) responses() object {
	problem := reference("responses/Problem")
	all := object{"4XX": problem, "5XX": problem}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		all["101"] = object{"description": "The connection has the messages of the stdio transport of MCP from now on"}
	case r.content != "":
		all["200"] = object{"description": "Events: the field data of each has this schema",
			"content": object{r.content: object{"schema": schemaOf(r.response)}}}
	default:
		all["200"] = object{"description": "The response",
			"content": object{"application/json": object{"schema": schemaOf(r.response)}}}
	}
	return all
}
