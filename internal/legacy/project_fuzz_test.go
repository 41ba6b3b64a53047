package legacy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// forbidden are paths in results that must be absent in revisions without a feature. A path element
// with [] is an array, all of whose elements are checked; one with a type checks only elements of that
// "type". A final * matches anything in `_meta` that does not belong to MCP Apps, and an empty
// `_meta`.
var forbidden = []struct {
	method, path string
	feature      wire.Feature
}{
	{"", "resultType", wire.ResultType},
	{"", "_meta/io.modelcontextprotocol~1serverInfo", wire.RequestEnvelope},
	{"", "_meta/io.modelcontextprotocol~1subscriptionId", wire.Subscriptions},
	{wire.MethodToolsList, "ttlMs", wire.CacheHints},
	{wire.MethodToolsList, "tools[]/title", wire.Titles},
	{wire.MethodToolsList, "tools[]/icons", wire.Icons},
	{wire.MethodToolsList, "tools[]/_meta/*", wire.DataMeta},
	{wire.MethodToolsList, "tools[]/annotations", wire.ToolAnnotations},
	{wire.MethodToolsList, "tools[]/outputSchema", wire.StructuredContent},
	{wire.MethodToolsCall, "inputRequests", wire.InputRequired},
	{wire.MethodToolsCall, "structuredContent", wire.StructuredContent},
	{wire.MethodToolsCall, "content[]=audio", wire.AudioContent},
	{wire.MethodToolsCall, "content[]=resource_link", wire.ResourceLinks},
	{wire.MethodToolsCall, "content[]/_meta", wire.DataMeta},
	{wire.MethodToolsCall, "content[]/icons", wire.Icons},
	{wire.MethodToolsCall, "content[]/annotations/lastModified", wire.LastModified},
	{wire.MethodToolsCall, "content[]/resource/_meta/*", wire.DataMeta},
	{wire.MethodPromptsList, "prompts[]/arguments[]/title", wire.Titles},
	{wire.MethodPromptsGet, "messages[]/content=audio", wire.AudioContent},
	{wire.MethodResourcesList, "resources[]/annotations/lastModified", wire.LastModified},
	{wire.MethodResourcesTemplatesList, "resourceTemplates[]/title", wire.Titles},
	{wire.MethodResourcesRead, "contents[]/_meta/*", wire.DataMeta},
	{wire.MethodResourcesRead, "cacheScope", wire.CacheHints},
}

// pathExists reports whether the path of a forbidden member exists in v.
func pathExists(v any, path string) bool {
	if path == "" {
		return v != nil
	}
	if path == "*" {
		return !onlyOfApps(v)
	}
	step, rest, _ := strings.Cut(path, "/")
	step, typ, typed := strings.Cut(step, "=")
	name, array := strings.CutSuffix(step, "[]")
	obj, _ := v.(map[string]any)
	v, ok := obj[strings.ReplaceAll(name, "~1", "/")]
	if !ok {
		return false
	}
	elements := []any{v}
	if array {
		elements, _ = v.([]any)
	}
	for _, e := range elements {
		switch obj, _ := e.(map[string]any); {
		case typed && obj["type"] == typ:
			return true
		case !typed && (rest == "" || pathExists(e, rest)):
			return true
		}
	}
	return false
}

func onlyOfApps(meta any) bool {
	members, _ := meta.(map[string]any)
	for key := range members {
		if key != "ui" && key != "ui/resourceUri" {
			return false
		}
	}
	return len(members) > 0
}

func FuzzProjectResult(f *testing.F) {
	for _, r := range richResults {
		f.Add(r.method, []byte(r.result))
	}
	for _, seed := range []string{
		`{"content":[{"type":"audio"},null,7,[{"type":"audio"}]],"structuredContent":false}`,
		`{"content":{"type":"audio"},"structuredContent":[]}`,
		`{"_meta":null,"content":null,"structuredContent":null}`,
		`{"content":[{"type":"resource","resource":[{"_meta":{}}],"annotations":[{"lastModified":1}]}]}`,
		`{"content":[{"type":"\u0061udio","data":"\ud83d\ude00"}],"\u005fmeta":{"io.modelcontextprotocol\/serverInfo":1}}`,
		`[]`, `null`, `"x"`, ` { "resultType" : "complete" } `,
	} {
		f.Add(wire.MethodToolsCall, []byte(seed))
	}
	f.Add(wire.MethodResourcesRead, []byte(`{"contents":[{"_meta":{"ui":1,"x":2}},{"_meta":{"\u0075i":{}}},{"_meta":{}},{"_meta":["ui"]}]}`))
	f.Add(wire.MethodToolsList, []byte(`{"tools":[{"inputSchema":{"properties":{"a":true,"\n":false,"c":1}},"outputSchema":true},{"outputSchema":{"type":"\u006fbject"}},[]]}`))
	f.Fuzz(func(t *testing.T, method string, result []byte) {
		if jsonscan.Valid(result, jsonscan.Limits{}) != nil {
			return
		}
		for _, rev := range legacyRevisions() {
			checkProjection(t, rev, method, result)
		}
		if got := appendResult(nil, wire.Latest(), method, result); string(got) != string(result) {
			t.Fatalf("the result was changed for the newest revision: %s", got)
		}
	})
}

func checkProjection(t *testing.T, rev wire.Revision, method string, result []byte) {
	before := string(result)
	projected := appendResult(nil, rev, method, result)
	if string(result) != before {
		t.Fatalf("%v: the input was changed", rev)
	}
	if err := jsonscan.Valid(projected, jsonscan.Limits{}); err != nil {
		t.Fatalf("%v: not strict JSON: %v\n%s", rev, err, projected)
	}
	value := decoded(t, projected)
	for _, rule := range forbidden {
		if (rule.method == "" || rule.method == method) && !rev.Has(rule.feature) && pathExists(value, rule.path) {
			t.Fatalf("%v %s has %s: %s", rev, method, rule.path, projected)
		}
	}
	if again := decoded(t, appendResult(nil, rev, method, projected)); !reflect.DeepEqual(value, again) {
		t.Fatalf("%v: projecting twice differs:\n%v\n%v", rev, value, again)
	}
}

func decoded(t *testing.T, data []byte) (value any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func FuzzProjectInputRequest(f *testing.F) {
	for _, seed := range []string{richForm, richMultiple, richURL, `{"requestedSchema":{"properties":{"a":{"oneOf":{"const":1},"enum":null}}}}`, `{"mode":null}`} {
		f.Add(wire.MethodElicitationCreate, []byte(seed))
	}
	for _, seed := range []string{richSampling, richToolSampling, `{"messages":{"content":[{}]},"tools":{}}`} {
		f.Add(wire.MethodSamplingCreateMessage, []byte(seed))
	}
	f.Add(wire.MethodRootsList, []byte(`{"_meta":{}}`))
	f.Fuzz(func(t *testing.T, method string, params []byte) {
		if jsonscan.Valid(params, jsonscan.Limits{}) != nil {
			return
		}
		for _, rev := range legacyRevisions() {
			projected, err := projectInputRequest(rev, method, params, "id")
			if err == nil {
				if err := jsonscan.Valid(projected, jsonscan.Limits{}); err != nil {
					t.Fatalf("%v: not strict JSON: %v\n%s", rev, err, projected)
				}
			}
			for name, object := range map[string][]byte{
				"response":     projectInputResponse(rev, method, params),
				"capabilities": clientCapabilities(rev, params),
			} {
				if err := jsonscan.Valid(object, jsonscan.Limits{}); err != nil {
					t.Fatalf("%v: %s is not strict JSON: %v\n%s", rev, name, err, object)
				}
			}
		}
	})
}

const smallResult = `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}},"content":[{"type":"text","text":"hello world"}]}`

func BenchmarkProjectResult(b *testing.B) {
	list := []byte(`{"resultType":"complete","tools":[` + strings.Repeat(`{"name":"echo","title":"Echo","description":"Says it again","inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}},`, 49) + `{"name":"x"}]}`)
	for name, test := range map[string]struct {
		rev    wire.Revision
		method string
		result []byte
	}{
		"call/newest session": {wire.November2025, wire.MethodToolsCall, []byte(smallResult)},
		"call/oldest":         {wire.November2024, wire.MethodToolsCall, []byte(smallResult)},
		"list of 50 tools":    {wire.November2025, wire.MethodToolsList, list},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				appendResult(nil, test.rev, test.method, test.result)
			}
		})
	}
}

// appendResult appends the result of a method as a client of rev gets it. It does not change
// result.
func appendResult(dst []byte, rev wire.Revision, method string, result []byte) []byte {
	return methodOf(rev, method).result.replace(append(dst, result...), len(dst))
}
