package catalogue_test

import (
	"strings"
	"testing"
)

func TestURIsInResultsAreMapped(t *testing.T) {
	c := merge(nil, withURIs("a", "file:///x"), withURIs("b", "file:///x", "file:///y"))
	const mapped = `"patchbay://b/file%3A%2F%2F%2Fx"`
	for _, test := range []struct{ name, method, result, want string }{
		{"contents of a read", "resources/read",
			`{"contents":[ {"uri":"file:///x","text":"file:///x"}, {"text":"", "uri" : "file:\/\/\/x"},{"uri":"file:///y"},7,{"uri":7}],"uri":"file:///x"}`,
			`{"contents":[ {"uri":` + mapped + `,"text":"file:///x"}, {"text":"", "uri" : ` + mapped + `},{"uri":"file:///y"},7,{"uri":7}],"uri":"file:///x"}`},
		{"links and resources of a call", "tools/call",
			`{"isError":false,"content":[{"type":"text","text":"file:///x","uri":"file:///x"},{"type":"resource_link","uri":"file:///x","name":"x"},` +
				`{"resource":{"uri":"file:///x","blob":""},"type":"resource"}],"structuredContent":{"uri":"file:///x"}}`,
			`{"isError":false,"content":[{"type":"text","text":"file:///x","uri":"file:///x"},{"type":"resource_link","uri":` + mapped + `,"name":"x"},` +
				`{"resource":{"uri":` + mapped + `,"blob":""},"type":"resource"}],"structuredContent":{"uri":"file:///x"}}`},
		{"the result of a task", "tasks/result", `{"content":[{"type":"resource_link","uri":"file:///x"}]}`,
			`{"content":[{"type":"resource_link","uri":` + mapped + `}]}`},
		{"messages of a prompt", "prompts/get",
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///x"}}},{"role":"user","content":{"type":"text","text":"x"}}]}`,
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":` + mapped + `}}},{"role":"user","content":{"type":"text","text":"x"}}]}`},
		{"another method", "completion/complete", `{"contents":[{"uri":"file:///x"}]}`, `{"contents":[{"uri":"file:///x"}]}`},
		{"odd results", "tools/call", `{"content":{"type":"resource_link","uri":"file:///x"}}`, `{"content":{"type":"resource_link","uri":` + mapped + `}}`},
		{"no content", "tools/call", `{"content":7}`, `{"content":7}`},
		{"no object", "tools/call", `[]`, `[]`},
	} {
		if got := string(c.MapResult("b", test.method, []byte(test.result))); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
		want := strings.Replace(test.result, `"file:///y"`, `"patchbay://a/file%3A%2F%2F%2Fy"`, 1) // a URI of b
		if got := string(c.MapResult("a", test.method, []byte(test.result))); got != want {
			t.Errorf("%s: got %s of the first server, want %s", test.name, got, want)
		}
	}
	// A template of one server matches the URIs that another one names in results.
	c = merge(nil, resourcesAnd("thief", nil, []string{"{+any}"}), withURIs("b", "db://x/1"))
	got := string(c.MapResult("b", "tools/call", []byte(`{"content":[{"type":"resource_link","u\u0072i":"db://x/2"}]}`)))
	if !strings.Contains(got, `"patchbay://b/db%3A%2F%2Fx%2F2"`) {
		t.Errorf("a URI that the template of another server matches: got %s", got)
	}
	result := []byte(`{"content":[{"type":"text","text":"x"}]}`)
	if got := c.MapResult("b", "tools/call", result); &got[0] != &result[0] {
		t.Error("an unchanged result was copied")
	}
}
