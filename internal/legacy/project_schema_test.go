package legacy

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// The official schemas allow additional members. The tests reject them, except in these objects.
var openByDefinition = map[string]bool{
	"_meta": true, "MetaObject": true, "ResultMetaObject": true, "NotificationMetaObject": true,
	"inputSchema": true, "outputSchema": true,
	"ClientCapabilities": true, "ServerCapabilities": true,
}

// schemas caches the official schemas and their compiled definitions.
var schemas = struct {
	mu       sync.Mutex // guards the fields below
	read     map[wire.Revision]any
	compiled map[string]*jsonschema.Schema
}{read: map[wire.Revision]any{}, compiled: map[string]*jsonschema.Schema{}}

// compileSchema returns a definition of a revision's official schema, given by its name and a path
// within it.
func compileSchema(rev wire.Revision, definition string) (*jsonschema.Schema, error) {
	schemas.mu.Lock()
	defer schemas.mu.Unlock()
	key := rev.String() + definition
	if s := schemas.compiled[key]; s != nil {
		return s, nil
	}
	doc, err := readSchema(rev)
	if err != nil {
		return nil, err
	}
	root := "definitions"
	if _, ok := doc.(map[string]any)["$defs"]; ok {
		root = "$defs"
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	s, err := compiler.Compile("schema.json#/" + root + "/" + definition)
	schemas.compiled[key] = s
	return s, err
}

func readSchema(rev wire.Revision) (any, error) {
	if doc, ok := schemas.read[rev]; ok {
		return doc, nil
	}
	dir := os.Getenv("PATCHBAY_SCHEMAS")
	if dir == "" {
		dir = "../../../shared/spec/schema"
	}
	f, err := os.Open(filepath.Join(dir, rev.String()+".json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		return nil, err
	}
	closeObjects(doc)
	schemas.read[rev] = doc
	return doc, nil
}

func closeObjects(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, s := range schema {
			closeObjects(s)
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		if _, open := schema["additionalProperties"]; !open && len(properties) > 0 && schema["type"] == "object" {
			schema["additionalProperties"] = false
		}
		for key, s := range schema {
			if !openByDefinition[key] {
				closeObjects(s)
			}
		}
	}
}

// mustValidate fails the test unless message is strict JSON and valid under a definition of the
// revision's official schema, without additional members.
func mustValidate(t *testing.T, rev wire.Revision, definition string, message []byte) {
	t.Helper()
	if err := jsonscan.Valid(message, jsonscan.Limits{}); err != nil {
		t.Errorf("%v: not strict JSON: %v\n%s", rev, err, message)
		return
	}
	schema, err := compileSchema(rev, definition)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no official schemas: set PATCHBAY_SCHEMAS to the directory that holds them (%v)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(message)))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v %s: %v\n%s", rev, definition, err, message)
	}
}

// legacyRevisions are those that have sessions.
func legacyRevisions() []wire.Revision {
	all := wire.Revisions()
	return all[:len(all)-1]
}

const (
	richIcons       = `[{"src":"https://example.com/i.png","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}]`
	richAnnotations = `{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}`
	richMeta        = `{"com.example/k":1}`
	resultFrame     = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"com.example/k":{"a":[1]}}`
	cacheFrame      = resultFrame + `,"ttlMs":0,"cacheScope":"private"`

	richText     = `{"type":"text","text":"a","annotations":` + richAnnotations + `,"_meta":` + richMeta + `}`
	richImage    = `{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"lastModified":"2025-01-12T15:00:58Z"}}`
	richAudio    = `{"type":"audio","data":"aGVsbG8=","mimeType":"audio/wav","annotations":` + richAnnotations + `,"_meta":` + richMeta + `}`
	richLink     = `{"type":"resource_link","name":"n","title":"N","uri":"file:///a","description":"d","mimeType":"text/plain","size":3,"icons":` + richIcons + `,"annotations":` + richAnnotations + `,"_meta":` + richMeta + `}`
	richEmbedded = `{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/plain","text":"x","_meta":` + richMeta + `},"annotations":` + richAnnotations + `,"_meta":` + richMeta + `}`
	richContent  = richText + `,` + richImage + `,` + richAudio + `,` + richLink + `,` + richEmbedded

	richTools = `[{"name":"t","title":"T","description":"d","icons":` + richIcons + `,"_meta":` + richMeta + `,
		"annotations":{"title":"x","readOnlyHint":true},
		"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":true,"b":false,"c":{"type":"string","x-mcp-header":"C"}},"required":["a"],"additionalProperties":false},
		"outputSchema":{"type":"object","properties":{"a":true}}},
		{"name":"array","inputSchema":{"type":"object"},"outputSchema":{"type":"array","items":{}}},
		{"name":"any","inputSchema":{"type":"object"},"outputSchema":{}},
		{"name":"untyped","inputSchema":{"type":"object"},"outputSchema":{"anyOf":[{"type":"object"}]}}]`
	richResource = `"name":"r","title":"R","description":"d","mimeType":"text/plain","icons":` + richIcons + `,"annotations":` + richAnnotations + `,"_meta":` + richMeta
)

// richResults are results with everything that the newest revision allows, by method and
// definition.
var richResults = []struct{ name, method, definition, result string }{
	{"tools", wire.MethodToolsList, "ListToolsResult", `{` + cacheFrame + `,"tools":` + richTools + `,"nextCursor":""}`},
	{"call", wire.MethodToolsCall, "CallToolResult", `{` + resultFrame + `,"content":[` + richContent + `],"structuredContent":{"a":null},"isError":false}`},
	{"call with an array", wire.MethodToolsCall, "CallToolResult", `{` + resultFrame + `,"content":[` + richImage + `],"structuredContent":[1,"<"]}`},
	{"call with null", wire.MethodToolsCall, "CallToolResult", `{"structuredContent":null,"content":[],` + resultFrame + `}`},
	{"call with text", wire.MethodToolsCall, "CallToolResult", `{"structuredContent":7,"content":[{"type":"text","text":"seven"}],` + resultFrame + `}`},
	{"prompts", wire.MethodPromptsList, "ListPromptsResult", `{` + cacheFrame + `,"prompts":[{"name":"p","title":"P","description":"d","icons":` + richIcons + `,"_meta":` + richMeta + `,"arguments":[{"name":"a","title":"A","description":"d","required":true}]}]}`},
	{"prompt", wire.MethodPromptsGet, "GetPromptResult", `{` + resultFrame + `,"description":"d","messages":[` +
		`{"role":"user","content":` + richText + `},{"role":"user","content":` + richImage + `},{"role":"assistant","content":` + richAudio + `},` +
		`{"role":"user","content":` + richLink + `},{"role":"user","content":` + richEmbedded + `}]}`},
	{"resources", wire.MethodResourcesList, "ListResourcesResult", `{` + cacheFrame + `,"resources":[{"uri":"file:///a","size":3,` + richResource + `}]}`},
	{"templates", wire.MethodResourcesTemplatesList, "ListResourceTemplatesResult", `{` + cacheFrame + `,"resourceTemplates":[{"uriTemplate":"file:///{a}",` + richResource + `}]}`},
	{"read", wire.MethodResourcesRead, "ReadResourceResult", `{` + cacheFrame + `,"contents":[{"uri":"file:///a","mimeType":"text/plain","text":"x","_meta":` + richMeta + `},{"uri":"file:///b","blob":"aGk=","_meta":{}}]}`},
	{"completion", wire.MethodCompletionComplete, "CompleteResult", `{` + resultFrame + `,"completion":{"values":["a"],"total":1,"hasMore":false}}`},
	{"other", "com.example/other", "Result", `{` + resultFrame + `}`},
}

func TestResultsAreValidInEachRevision(t *testing.T) {
	for _, r := range richResults {
		t.Run(r.name, func(t *testing.T) {
			mustValidate(t, wire.Latest(), r.definition, []byte(r.result))
			for _, rev := range legacyRevisions() {
				mustValidate(t, rev, r.definition, appendResult(nil, rev, r.method, []byte(r.result)))
			}
		})
	}
}

// One revision with sessions has tasks.
func TestTasksAreValidInTheirRevision(t *testing.T) {
	const task = `"taskId":"t","status":"failed","statusMessage":"m","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":null,"pollInterval":5`
	const related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`
	rev := wire.November2025
	for _, r := range []struct{ method, definition, result string }{
		{wire.MethodToolsCall, "CreateTaskResult", `{"resultType":"task","task":{` + task + `},"_meta":{"io.modelcontextprotocol/serverInfo":{},"io.modelcontextprotocol/model-immediate-response":"x"}}`},
		// The schema combines these from Result and Task, which the test has closed.
		{wire.MethodTasksGet, "Task", `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}},` + task + `}`},
		{wire.MethodTasksCancel, "Task", `{"resultType":"complete",` + task + `}`},
		{wire.MethodTasksList, "ListTasksResult", `{` + resultFrame + `,"tasks":[{` + task + `}],"nextCursor":"x"}`},
		{wire.MethodTasksResult, "CallToolResult", `{"resultType":"complete","content":[` + richContent + `],"structuredContent":[1],` + related + `}`},
		{wire.MethodToolsList, "ListToolsResult", `{` + cacheFrame + `,"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`},
	} {
		projected := appendResult(nil, rev, r.method, []byte(r.result))
		mustValidate(t, rev, r.definition, projected)
		if r.definition == "CreateTaskResult" {
			if back := modernTask(projected); !isNewTask(r.method, []byte(`{"task":{}}`), projected) ||
				jsonscan.GetString(back, "resultType") != "task" || !isSessionTask(rev, back) {
				t.Errorf("%s became %s", projected, back)
			}
		}
	}
	m := projectNotification(rev, notification(wire.NotificationTasksStatus, `{`+task+`,"_meta":{"io.modelcontextprotocol/subscriptionId":"7"}}`))
	mustValidate(t, rev, "Task", m.Params)
	question, err := projectInputRequest(rev, wire.MethodElicitationCreate, []byte(`{`+related+`,`+richForm[1:]), "")
	if err != nil {
		t.Fatal(err)
	}
	mustValidate(t, rev, "ElicitRequest/properties/params", question)
	capabilities := `{"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`
	mustValidate(t, rev, "ServerCapabilities", projectCapabilities(rev, []byte(capabilities)))
}

func TestNotificationsAreValidInEachRevision(t *testing.T) {
	const subscription = `"_meta":{"io.modelcontextprotocol/subscriptionId":"7"}`
	notifications := []struct{ method, definition, params string }{
		{wire.NotificationProgress, "ProgressNotification", `{"progressToken":1,"progress":0.5,"total":1,"message":"m"}`},
		{wire.NotificationMessage, "LoggingMessageNotification", `{"level":"info","logger":"l","data":[null]}`},
		{wire.NotificationToolsListChanged, "ToolListChangedNotification", `{` + subscription + `}`},
		{wire.NotificationPromptsListChanged, "PromptListChangedNotification", `{` + subscription + `}`},
		{wire.NotificationResourcesListChanged, "ResourceListChangedNotification", `{` + subscription + `}`},
		{wire.NotificationResourcesUpdated, "ResourceUpdatedNotification", `{"uri":"file:///a",` + subscription + `}`},
		{wire.NotificationCancelled, "CancelledNotification", `{"requestId":"7","reason":"r",` + subscription + `}`},
	}
	for _, n := range notifications {
		t.Run(n.method, func(t *testing.T) {
			mustValidate(t, wire.Latest(), n.definition+"/properties/params", []byte(n.params))
			for _, rev := range legacyRevisions() {
				m := projectNotification(rev, notification(n.method, n.params))
				mustValidate(t, rev, n.definition+"/properties/params", m.Params)
			}
		})
	}
}

func TestInitializeIsValidInEachRevision(t *testing.T) {
	const implementation = `{"name":"n","title":"T","version":"1","description":"d","websiteUrl":"https://example.com","icons":` + richIcons + `}`
	const capabilities = `{"experimental":{"x":{}},"logging":{},"completions":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":[]}}}`
	mustValidate(t, wire.Latest(), "Implementation", []byte(implementation))
	mustValidate(t, wire.Latest(), "ServerCapabilities", []byte(capabilities))
	for _, rev := range legacyRevisions() {
		result := `{"protocolVersion":"` + rev.String() + `","capabilities":` + string(projectCapabilities(rev, []byte(capabilities))) +
			`,"serverInfo":` + string(projectImplementation(rev, []byte(implementation))) + `}`
		mustValidate(t, rev, "InitializeResult", []byte(result))
	}
}

const (
	richForm = `{"mode":"form","message":"m","requestedSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["s"],"properties":{` +
		`"s":{"type":"string","title":"S","minLength":1,"format":"email","default":"x"},` +
		`"n":{"type":"number","minimum":0.5,"default":1.5},"i":{"type":"integer","default":1},` +
		`"b":{"type":"boolean","default":true},` +
		`"e":{"type":"string","enum":["a","b"],"default":"a"},` +
		`"named":{"type":"string","enum":["a"],"enumNames":["A"]},` +
		`"t":{"type":"string","title":"T","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}],"default":"b"}}}}`
	richMultiple = `{"message":"m","requestedSchema":{"type":"object","properties":{"many":{"type":"array","items":{"type":"string","enum":["a"]},"default":["a"]}}}}`
	richURL      = `{"mode":"url","message":"m","url":"https://example.com/x"}`

	richSampling = `{"messages":[{"role":"user","content":` + richText + `},{"role":"assistant","_meta":{},"content":[` + richImage + `,{"type":"text","text":"b"}]}],` +
		`"maxTokens":5,"systemPrompt":"s","temperature":0.5,"stopSequences":["x"],"metadata":{"m":1},"includeContext":"none","modelPreferences":{"hints":[{"name":"h"}],"costPriority":1},"tools":[],"toolChoice":{"mode":"auto"}}`
	richToolSampling = `{"messages":[{"role":"assistant","content":{"type":"tool_use","id":"1","name":"t","input":{}}},` +
		`{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[` + richLink + `],"structuredContent":[1],"_meta":{}}]}],"maxTokens":5,"tools":` + richTools + `}`
)

func TestInputRequestsAreValidInEachRevision(t *testing.T) {
	requests := []struct {
		name, method, definition, params string
		since                            wire.Revision // earlier ones do not support it
	}{
		{"form", wire.MethodElicitationCreate, "ElicitRequest", richForm, wire.June2025},
		{"form with arrays", wire.MethodElicitationCreate, "ElicitRequest", richMultiple, wire.November2025},
		{"url", wire.MethodElicitationCreate, "ElicitRequest", richURL, wire.November2025},
		{"sampling", wire.MethodSamplingCreateMessage, "CreateMessageRequest", richSampling, wire.November2024},
		{"sampling with audio", wire.MethodSamplingCreateMessage, "CreateMessageRequest", `{"messages":[{"role":"user","content":` + richAudio + `}],"maxTokens":1}`, wire.March2025},
		{"sampling with tools", wire.MethodSamplingCreateMessage, "CreateMessageRequest", richToolSampling, wire.November2025},
		{"roots", wire.MethodRootsList, "ListRootsRequest", `{"_meta":{"com.example/k":1}}`, wire.November2024},
	}
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			mustValidate(t, wire.Latest(), r.definition+"/properties/params", []byte(r.params))
			for _, rev := range legacyRevisions() {
				params, err := projectInputRequest(rev, r.method, []byte(r.params), "id-1")
				if rev < r.since {
					if err == nil || !strings.Contains(err.Message, "protocol revision has no ") {
						t.Errorf("%v: got %s, %v, want a refusal", rev, params, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%v: %v", rev, err)
					continue
				}
				mustValidate(t, rev, r.definition+"/properties/params", params)
			}
		})
	}
}

func TestInputResponsesAreValid(t *testing.T) {
	responses := []struct{ method, definition, result string }{
		{wire.MethodElicitationCreate, "ElicitResult", `{"action":"accept","content":{"a":"x","b":1,"c":true},"_meta":{"x":1}}`},
		{wire.MethodElicitationCreate, "ElicitResult", `{"action":"decline","content":null}`},
		{wire.MethodSamplingCreateMessage, "CreateMessageResult", `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m","stopReason":"endTurn","_meta":{"x":1},"usage":5}`},
		{wire.MethodRootsList, "ListRootsResult", `{"roots":[{"uri":"file:///a","name":"a"}],"_meta":{},"nextCursor":"x"}`},
	}
	for _, r := range responses {
		for _, rev := range legacyRevisions() {
			mustValidate(t, wire.Latest(), r.definition, projectInputResponse(rev, r.method, []byte(r.result)))
		}
	}
}

func TestClientCapabilitiesAreValid(t *testing.T) {
	declarations := []string{
		``, `null`, `[]`, `{}`,
		`{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`,
		`{"roots":null,"sampling":true,"elicitation":"yes","experimental":[],"extensions":null}`,
		`{"sampling":{"tools":{},"context":null},"elicitation":{"form":{},"url":true},"experimental":{"a":{},"b":1},"extensions":{"com.example/a":{},"io.modelcontextprotocol/tasks":{}},"tasks":{"list":{}}}`,
	}
	for _, declared := range declarations {
		for _, rev := range legacyRevisions() {
			mustValidate(t, wire.Latest(), "ClientCapabilities", clientCapabilities(rev, json.RawMessage(declared)))
		}
	}
}
