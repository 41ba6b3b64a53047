package catalogue_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

// definition returns the public definition of the only tool of a server.
func definition(t *testing.T, item string, o *catalogue.ServerOptions) string {
	t.Helper()
	s := server("s", map[catalogue.Kind][]string{catalogue.Tools: {item}})
	s.Options = o
	c := merge(nil, s)
	if len(c.Items(catalogue.Tools)) != 1 {
		t.Fatalf("%s was left out: %v", item, c.Problems())
	}
	return string(c.Items(catalogue.Tools)[0].Definition())
}

func TestOnlyTheNameOfADefinitionChanges(t *testing.T) {
	for item, want := range map[string]string{
		`{ "x-order":1 , "name" : "x", "inputSchema":{"type":"object","name":"x"},"title":"name",` + "\n\t" + `"_meta":{"name":"x"} }`: `{ "x-order":1 , "name" : "s__x", "inputSchema":{"type":"object","name":"x"},"title":"name",` + "\n\t" + `"_meta":{"name":"x"} }`,
		`{"inputSchema":{"type":"object"},"n\u0061me":"\u0078"}`:                                                                       `{"inputSchema":{"type":"object"},"n\u0061me":"s__x"}`,
		// Clients refuse whole lists for these two.
		`{"title":null,"name":"x","outputSchema":null,"inputSchema":{},"other":null}`:                                                                                           `{"name":"s__x","inputSchema":{"type":"object"},"other":null}`,
		`{"name":"x","inputSchema":{"properties":{}}, "_meta" : null , "description" : null }`:                                                                                  `{"name":"s__x","inputSchema":{"properties":{},"type":"object"}  }`,
		`{"name":"x","inputSchema":{"type":"object","x":null},"annotations":{"title":null,"readOnlyHint":true},"icons":[{"src":"a","sizes":null},{"mimeType":null,"src":"b"}]}`: `{"name":"s__x","inputSchema":{"type":"object","x":null},"annotations":{"readOnlyHint":true},"icons":[{"src":"a"},{"src":"b"}]}`,
		`{ "title" : null , "description":null, "name":"x","inputSchema":{"type":"object"},"icons":null}`:                                                                       `{ "name":"s__x","inputSchema":{"type":"object"}}`,
	} {
		if got := definition(t, item, nil); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", item, got, want)
		}
	}
}

func TestConfiguredDescriptionsAndHiddenArguments(t *testing.T) {
	item := `{"name":"x","description":"old","inputSchema":{"type":"object","properties":{"a":{"type":"string"}, "b":{"a":1},` +
		`"c":{}},"required":["a" , "b"],"a":1}}`
	for _, test := range []struct {
		options *catalogue.ServerOptions
		want    string
	}{
		{&catalogue.ServerOptions{Describe: map[string]string{"x": "new \"text\""}}, `{"name":"s__x","description":"new \"text\"",` +
			`"inputSchema":{"type":"object","properties":{"a":{"type":"string"}, "b":{"a":1},"c":{}},"required":["a" , "b"],"a":1}}`},
		{&catalogue.ServerOptions{HideArgs: map[string][]string{"x": {"a", "none"}}}, `{"name":"s__x","description":"old",` +
			`"inputSchema":{"type":"object","properties":{ "b":{"a":1},"c":{}},"required":["b"],"a":1}}`},
		{&catalogue.ServerOptions{HideArgs: map[string][]string{"x": {"b", "c"}}}, `{"name":"s__x","description":"old",` +
			`"inputSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"a":1}}`},
		{&catalogue.ServerOptions{HideArgs: map[string][]string{"x": {"a", "b", "c"}}}, `{"name":"s__x","description":"old",` +
			`"inputSchema":{"type":"object","properties":{},"required":[],"a":1}}`},
		{&catalogue.ServerOptions{HideArgs: map[string][]string{"y": {"a"}}}, `{"name":"s__x","description":"old",` +
			`"inputSchema":{"type":"object","properties":{"a":{"type":"string"}, "b":{"a":1},"c":{}},"required":["a" , "b"],"a":1}}`},
	} {
		if got := definition(t, item, test.options); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	got := definition(t, `{"name":"x","inputSchema":{"type":"object"}}`, &catalogue.ServerOptions{Describe: map[string]string{"x": "new"}})
	if want := `{"name":"s__x","inputSchema":{"type":"object"},"description":"new"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := withTools("s", "x")
	s.Options = &catalogue.ServerOptions{HideArgs: map[string][]string{"x": {"a"}}}
	if got := merge(nil, s).Find(catalogue.Tools, "s__x").HiddenArguments(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got the hidden arguments %q, want a", got)
	}
}

func TestItemsHaveTitlesAndDescriptions(t *testing.T) {
	s := server("s", map[catalogue.Kind][]string{
		catalogue.Tools:     {`{"name":"x","title":"T","description":"D","inputSchema":{}}`},
		catalogue.Resources: {`{"uri":"x:1","name":"n"}`}})
	c := merge(nil, s)
	if i := c.Items(catalogue.Tools)[0]; i.Description() != "D" {
		t.Errorf("got %q, want D", i.Description())
	}
	if i := c.Items(catalogue.Resources)[0]; i.Description() != "" {
		t.Errorf("got %q, want no description", i.Description())
	}
}

// removeNulls removes the members of objects that are null.
func removeNulls(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			removeNulls(e)
		}
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, v any) bool { return v == nil })
	}
}

// FuzzDefinition checks that a definition changes in the ways that are configured, and in no other.
func FuzzDefinition(f *testing.F) {
	f.Add(`{"name":"x","inputSchema":{"properties":{"a":1,"b":2},"required":["a"]}}`, "a", "b")
	f.Add(` {"inputSchema" : { "required":["a","a"], "properties" : { "a" : {} , "b" : {} , "c" : {} } } , "name":"x" } `, "b", "c")
	f.Add(`{"title":null,"name":"x","icons":null,"inputSchema":{}}`, "", "x")
	f.Fuzz(func(t *testing.T, item, hidden, alsoHidden string) {
		s := server("s", map[catalogue.Kind][]string{catalogue.Tools: {item}})
		if s.Lists[catalogue.Tools].Len() != 1 {
			return
		}
		original := publicNames(catalogue.Merge([]catalogue.Server{s}, &catalogue.Options{Single: true}), catalogue.Tools)[0]
		s.Options = &catalogue.ServerOptions{HideArgs: map[string][]string{original: {hidden, alsoHidden}}}
		tool := merge(nil, s).Items(catalogue.Tools)[0]
		var want, got map[string]any
		if json.Unmarshal(tool.Raw, &want) != nil {
			return // a number beyond float64
		}
		if err := json.Unmarshal(tool.Definition(), &got); err != nil {
			t.Fatalf("%s: %v", tool.Definition(), err)
		}
		want["name"] = tool.Public
		for _, key := range []string{"title", "description", "outputSchema", "annotations", "icons", "execution", "_meta"} {
			if want[key] == nil {
				delete(want, key)
			}
		}
		for _, d := range []map[string]any{got, want} {
			removeNulls(d["annotations"])
			removeNulls(d["icons"])
		}
		schema := want["inputSchema"].(map[string]any)
		schema["type"] = "object"
		if p, ok := schema["properties"].(map[string]any); ok {
			maps.DeleteFunc(p, func(name string, _ any) bool { return name == hidden || name == alsoHidden })
		}
		if r, ok := schema["required"].([]any); ok {
			schema["required"] = slices.DeleteFunc(r, func(name any) bool { return name == hidden || name == alsoHidden })
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %v", item, tool.Definition(), want)
		}
	})
}
