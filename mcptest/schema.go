package mcptest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest/internal/specschema"
)

// SchemaDir returns the directory of the official schemas, which contains a file per revision, such
// as 2025-11-25.json. It is the value of PATCHBAY_SCHEMAS, or shared/spec/schema beside the module,
// or the directory in the user's cache to which the command mcptest/schemas downloads them. If it
// is empty, messages are not validated.
func SchemaDir() string {
	if dir := cmp.Or(os.Getenv("PATCHBAY_SCHEMAS"), dirBesideModule()); dir != "" {
		return dir
	}
	dir, err := specschema.CacheDir()
	if err != nil {
		return ""
	}
	files := specschema.Files()
	if _, err := os.Stat(filepath.Join(dir, files[len(files)-1].Name())); err != nil {
		return "" // the last file is downloaded last
	}
	return dir
}

// dirBesideModule returns the directory shared/spec/schema beside the module, or "".
func dirBesideModule() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		candidate := filepath.Join(filepath.Dir(dir), "shared", "spec", "schema")
		if _, err := os.Stat(candidate); err == nil {
			return candidate
		}
	}
	return ""
}

// A Schema is the official schema of a revision. It rejects members that the revision does not
// name, except where the revision allows any, as in `_meta`.
type Schema struct {
	revision    string
	compiler    *jsonschema.Compiler
	root        string // the name of the object with the definitions
	definitions map[string]any
	methods     map[string]string      // the definitions of messages, by method
	errors      map[json.Number]string // the definitions of errors, by code

	mu       sync.Mutex // guards the field below
	compiled map[string]*jsonschema.Schema
}

// schemas caches the schemas by revision.
var schemas sync.Map

// noSchemas limits the message about missing schemas to a single line in a run.
var noSchemas sync.Once

// openSchema returns the schema of a revision, nil if there is no schema directory.
func openSchema(t testing.TB, revision string) *Schema {
	t.Helper()
	dir := SchemaDir()
	if dir == "" {
		noSchemas.Do(func() {
			fmt.Fprintf(os.Stderr, "mcptest: messages are not validated by the schemas, which this downloads: %s\n",
				specschema.Command)
		})
		return nil
	}
	if known, ok := schemas.Load(revision); ok {
		return known.(*Schema)
	}
	s, err := openCached(dir, revision)
	if err != nil {
		t.Fatal(err)
	}
	known, _ := schemas.LoadOrStore(revision, s)
	return known.(*Schema)
}

// openCached is OpenSchema. A schema of the user's cache must be the published schema: it may have
// been downloaded by an earlier version of this module.
func openCached(dir, revision string) (*Schema, error) {
	if cache, err := specschema.CacheDir(); err == nil && dir == cache {
		for _, f := range specschema.Files() {
			if f.Revision != revision {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err == nil {
				err = f.Verify(text)
			}
			if err != nil {
				return nil, fmt.Errorf("mcptest: %w: run %s", err, specschema.Command)
			}
		}
	}
	return OpenSchema(dir, revision)
}

// OpenSchema reads the schema of a revision from a directory.
func OpenSchema(dir, revision string) (*Schema, error) {
	text, err := os.ReadFile(filepath.Join(dir, revision+".json"))
	if err != nil {
		return nil, err
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	doc, ok := decoded.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("schema of revision %s: not an object", revision)
	}
	closeObjects(doc)
	addView(doc)
	s := &Schema{
		revision: revision, compiler: jsonschema.NewCompiler(), root: "$defs",
		methods: map[string]string{}, errors: map[json.Number]string{}, compiled: map[string]*jsonschema.Schema{},
	}
	s.compiler.AssertFormat()
	s.compiler.RegisterFormat(&jsonschema.Format{Name: "byte", Validate: checkBase64})
	// The library treats a template as a URI, which must not contain braces in its host.
	s.compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: func(any) error { return nil }})
	if err := s.compiler.AddResource("mcp.json", doc); err != nil {
		return nil, err
	}
	if doc[s.root] == nil {
		s.root = "definitions"
	}
	s.definitions, _ = doc[s.root].(map[string]any)
	for name, d := range s.definitions {
		if method, ok := constant(d, "properties", "method").(string); ok && !strings.HasPrefix(name, "Client") {
			s.methods[method] = name
			addEnvelope(d)
		}
		if code, ok := constant(d, "properties", "error", "allOf", "properties", "code").(json.Number); ok {
			s.errors[code] = name
		}
	}
	return s, nil
}

func checkBase64(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := base64.StdEncoding.DecodeString(text)
	return err
}

// open are the names of definitions and members that allow additional members.
var open = []string{
	"_meta", "MetaObject", "ResultMetaObject", "NotificationMetaObject", "inputSchema", "outputSchema",
	"ClientCapabilities", "ServerCapabilities", "allOf",
}

// closeObjects makes every object within a schema reject additional members.
func closeObjects(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, s := range schema {
			closeObjects(s)
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		if _, says := schema["additionalProperties"]; !says && len(properties) > 0 && schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		for name, s := range schema {
			if !slices.Contains(open, name) {
				closeObjects(s)
			}
		}
	}
}

// addView allows the `_meta` of MCP Apps in data, in every revision.
func addView(doc map[string]any) {
	for _, root := range []string{"$defs", "definitions"} {
		definitions, _ := doc[root].(map[string]any)
		names := []string{"Tool", "Resource", "ResourceTemplate", "TextResourceContents", "BlobResourceContents"}
		for _, name := range names {
			definition, _ := definitions[name].(map[string]any)
			properties, _ := definition["properties"].(map[string]any)
			if _, has := properties["_meta"]; properties != nil && !has {
				view := map[string]any{"ui": map[string]any{}, "ui/resourceUri": map[string]any{}}
				properties["_meta"] = map[string]any{
					"type": "object", "properties": view, "additionalProperties": false,
				}
			}
		}
	}
}

// addEnvelope adds the members of every message to the definition of a message. The older schemas
// define them elsewhere.
func addEnvelope(message any) {
	properties, _ := message.(map[string]any)["properties"].(map[string]any)
	properties["jsonrpc"] = map[string]any{"const": "2.0"}
	properties["id"] = map[string]any{"type": []any{"string", "integer"}}
}

// constant returns the const at a path in a schema, following each element of lists; nil if there
// is none.
func constant(schema any, path ...string) any {
	switch s := schema.(type) {
	case []any:
		for _, element := range s {
			if value := constant(element, path...); value != nil {
				return value
			}
		}
	case map[string]any:
		if len(path) == 0 {
			return s["const"]
		}
		return constant(s[path[0]], path[1:]...)
	}
	return nil
}

// Validate validates a message of a server. For a response, method is that of its request.
func (s *Schema) Validate(m *jsonrpc.Message, method string) error {
	text := jsonrpc.Append(nil, m)
	switch m.Kind() {
	case jsonrpc.Request, jsonrpc.Notification:
		definition, ok := s.methods[m.Method]
		if !ok {
			return fmt.Errorf("revision %s has no method %q", s.revision, m.Method)
		}
		return s.check(definition, text)
	case jsonrpc.Response:
		if m.Error == nil {
			return s.checkResult(m.Result, method)
		}
		definition, ok := s.errors[json.Number(fmt.Sprint(m.Error.Code))]
		if !ok {
			definition = s.first("JSONRPCErrorResponse", "JSONRPCError")
		}
		return s.check(definition, text)
	}
	return fmt.Errorf("invalid kind of message: %s", text)
}

// mayAsk are the methods whose result may ask for input. Spec: basic/patterns/mrtr (2026-07-28),
// Supported Requests.
var mayAsk = []string{"tools/call", "prompts/get", "resources/read"}

// checkResult validates a result against the definition for its request. Results of unknown methods
// are only validated as a Result.
func (s *Schema) checkResult(result []byte, method string) error {
	var asks struct {
		ResultType string
		Task       json.RawMessage
	}
	if err := json.Unmarshal(result, &asks); err != nil {
		return err
	}
	definition := s.first(strings.TrimSuffix(s.methods[method], "Request")+"Result", "EmptyResult")
	switch {
	case s.methods[method] == "":
		definition = "Result"
	case asks.ResultType == driver.ResultInputRequired && !slices.Contains(mayAsk, method):
		return fmt.Errorf("%s cannot ask for input: %s", method, result)
	case asks.ResultType == driver.ResultInputRequired:
		definition = "InputRequiredResult"
	case asks.Task != nil && method == "tools/call":
		definition = s.first("CreateTaskResult", definition)
	}
	return s.check(definition, result)
}

// first returns the first name with a definition, or the last name.
func (s *Schema) first(names ...string) string {
	for _, name := range names {
		if s.definitions[name] != nil {
			return name
		}
	}
	return names[len(names)-1]
}

func (s *Schema) check(definition string, text []byte) error {
	compiled, err := s.compile(definition)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := compiled.Validate(value); err != nil {
		return fmt.Errorf("%s of revision %s: %w\n%s", definition, s.revision, err, text)
	}
	return nil
}

func (s *Schema) compile(definition string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.compiled[definition]; c != nil {
		return c, nil
	}
	c, err := s.compiler.Compile("mcp.json#/" + s.root + "/" + definition)
	if err != nil {
		return nil, err
	}
	s.compiled[definition] = c
	return c, nil
}
