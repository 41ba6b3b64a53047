package lint_test

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/lint"
)

// tool returns a tool without findings in which members are replaced, or removed by null without
// quotes.
func tool(members string) string {
	return merge(`{"name":"get_weather","title":"Get weather","description":"Return the weather of a city.",
		"inputSchema":{"type":"object","properties":{"city":{"type":"string","description":"name of a city"}},
		"required":["city"],"additionalProperties":false},
		"annotations":{"readOnlyHint":true}}`, members)
}

func input(schema string) string { return tool(`{"inputSchema":` + schema + `}`) }

func prompt(members string) string {
	return merge(`{"name":"review","description":"Review code.",
		"arguments":[{"name":"code","description":"code to review"}]}`, members)
}

func resource(members string) string {
	return merge(`{"uri":"file:///a.txt","name":"a","mimeType":"text/plain","description":"A text."}`, members)
}

func template(members string) string {
	return merge(`{"uriTemplate":"file:///logs/{day}","name":"logs","description":"Logs of a day."}`, members)
}

// merge returns an object with the members of another. A value "REMOVED" removes the member.
func merge(object, members string) string {
	all := map[string]stdjson.RawMessage{}
	for _, text := range []string{object, members} {
		if err := stdjson.Unmarshal([]byte(text), &all); err != nil {
			panic(fmt.Sprintf("%s: %v", text, err))
		}
	}
	for key, value := range all {
		if string(value) == `"REMOVED"` {
			delete(all, key)
		}
	}
	text, err := stdjson.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func server(tools ...string) *lint.Server {
	s := &lint.Server{
		Revision: "2025-11-25", Newest: "2026-07-28", Supported: []string{"2025-11-25", "2026-07-28"},
		Info: []byte(`{"name":"s","version":"1"}`), Capabilities: []byte(`{"tools":{}}`),
		Served: map[string]bool{},
	}
	for _, t := range tools {
		s.Tools = append(s.Tools, []byte(t))
	}
	return s
}

func changed(change func(s *lint.Server)) *lint.Server {
	s := server(tool(`{}`))
	change(s)
	return s
}

func raw(texts ...string) (all []stdjson.RawMessage) {
	for _, t := range texts {
		all = append(all, []byte(t))
	}
	return all
}

func prompts(texts ...string) *lint.Server {
	return changed(func(s *lint.Server) { s.Prompts = raw(texts...) })
}
func resources(texts ...string) *lint.Server {
	return changed(func(s *lint.Server) { s.Resources = raw(texts...) })
}
func templates(texts ...string) *lint.Server {
	return changed(func(s *lint.Server) { s.Templates = raw(texts...) })
}

func properties(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"p%d":{"type":"string","description":"%s"}`, i, strings.Repeat("x", 100)))
	}
	return `{"type":"object","properties":{` + strings.Join(all, ",") + `}}`
}

func deep(levels int) string {
	if levels == 0 {
		return `{"type":"string","description":"d"}`
	}
	return `{"type":"object","description":"d","properties":{"a":` + deep(levels-1) + `}}`
}

// broken maps each rule to servers that break it and no other rule.
var broken = map[string][]*lint.Server{
	"name-missing": {server(tool(`{"name":"REMOVED"}`)), prompts(prompt(`{"name":""}`))},
	"name-duplicate": {server(tool(`{}`), tool(`{"title":"B","description":"Another one."}`)),
		prompts(prompt(`{}`), prompt(`{}`))},
	"name-case": {server(tool(`{}`),
		tool(`{"name":"GET_weather","title":"B","description":"Another one."}`))},
	"name-characters": {server(tool(`{"name":"get weather"}`)), server(tool(`{"name":"é"}`))},
	"name-length":     {server(tool(`{"name":"` + strings.Repeat("a", 129) + `"}`))},
	"name-portable": {server(tool(`{"name":"a.b"}`)),
		server(tool(`{"name":"` + strings.Repeat("a", 65) + `"}`))},
	"title-missing":            {server(tool(`{"title":"REMOVED"}`))},
	"title-duplicate":          {server(tool(`{}`), tool(`{"name":"b","description":"Another one."}`))},
	"title-long":               {server(tool(`{"title":"` + strings.Repeat("é", 101) + `"}`))},
	"tool-description-missing": {server(tool(`{"description":"REMOVED"}`))},
	"description-missing": {prompts(prompt(`{"description":"REMOVED"}`)),
		templates(template(`{"description":"REMOVED"}`))},
	"description-short":     {server(tool(`{"description":"Weather."}`))},
	"description-name":      {server(tool(`{"description":"Get Weather."}`))},
	"description-long":      {server(tool(`{"description":"` + strings.Repeat("x", 1025) + `"}`))},
	"description-duplicate": {server(tool(`{}`), tool(`{"name":"b","title":"B"}`))},
	"hidden-characters": {server(tool(`{"description":"Return the weather.` + "\u202e" + `"}`)),
		server(input(`{"type":"object","properties":{"city":{"type":"string","description":"a\u200bb c"}}}`)),
		changed(func(s *lint.Server) { s.Instructions = "a\u200bb" }), prompts(prompt(`{"title":"\u001b[2J"}`))},
	"input-schema-missing": {server(tool(`{"inputSchema":"REMOVED"}`)), server(tool(`{"inputSchema":null}`))},
	"input-schema-type": {server(input(`{"properties":{"a":{"type":"string","description":"d"}}}`)),
		server(input(`{"type":"array"}`))},
	"input-schema-composition": {server(input(`{"type":"object","anyOf":[{"required":[]}]}`))},
	"input-schema-open": {server(input(`{"type":"object"}`)),
		server(input(`{"type":"object","properties":{}}`))},
	"output-schema-type": {server(tool(`{"outputSchema":{"type":"string"}}`))},
	"schema-invalid": {server(input(`{"type":"object","properties":{"a":{"type":"int","description":"d"}}}`)),
		server(tool(`{"outputSchema":{"type":"object","required":"a"}}`))},
	"schema-dialect": {server(input(`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":` +
		`{"a":{"type":"string","description":"d"}}}`))},
	"schema-reference": {server(input(`{"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}}`)),
		server(input(`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"B":{}}}`))},
	"schema-pattern": {server(input(`{"type":"object","properties":{"a":{"type":"string","description":"d","pattern":"(?=x)"}}}`))},
	"schema-required": {server(input(`{"type":"object","properties":{"a":{"type":"string","description":"d"}},"required":["b"]}`)),
		server(tool(`{"outputSchema":{"type":"object","properties":{"a":{"type":"object","required":["x"]}}}}`))},
	"schema-default": {server(input(`{"type":"object","properties":{"a":{"type":"string","description":"d","default":1}}}`))},
	"schema-depth":   {server(tool(`{"outputSchema":` + deep(7) + `}`))},
	"schema-size": {server(tool(`{"outputSchema":` + properties(200) + `}`)),
		server(tool(`{"outputSchema":` + properties(3000) + `}`))},
	"header-parameter":     {server(input(`{"type":"object","properties":{"a":{"type":"string","description":"d","x-mcp-header":""}}}`))},
	"argument-description": {server(input(`{"type":"object","properties":{"a":{"type":"string"}}}`))},
	"argument-type":        {server(input(`{"type":"object","properties":{"a":{"description":"d"}}}`))},
	"annotations-missing":  {server(tool(`{"annotations":"REMOVED"}`)), server(tool(`{"annotations":{"title":"x"}}`))},
	"annotations-invalid": {server(tool(`{"annotations":{"readOnlyHint":"yes","openWorldHint":true}}`)),
		server(tool(`{"annotations":[]}`))},
	"annotations-contradictory": {server(tool(`{"annotations":{"readOnlyHint":true,"destructiveHint":true}}`))},
	"annotations-name": {server(tool(`{"name":"delete_file"}`)),
		server(tool(`{"annotations":{"destructiveHint":true}}`))},
	"tool-tokens": {server(input(properties(40)))},
	"total-tokens": {server(slices.Collect(func(yield func(string) bool) {
		for i := range 12 {
			yield(tool(fmt.Sprintf(`{"name":"t%d","title":"T%[1]d","description":"The tool %[1]d of this server.","inputSchema":%s}`,
				i, properties(27))))
		}
	})...)},
	"tools-many": {server(slices.Collect(func(yield func(string) bool) {
		for i := range 41 {
			yield(tool(fmt.Sprintf(`{"name":"t%d","title":"T%[1]d","description":"The tool %[1]d of this server."}`,
				i)))
		}
	})...)},
	"instructions-long": {changed(func(s *lint.Server) { s.Instructions = strings.Repeat("x", 2001) })},
	"icon-invalid": {server(tool(`{"icons":[{"src":"http://example.com/a.png"}]}`)),
		resources(resource(`{"icons":[{}]}`))},
	"prompt-argument-name": {prompts(prompt(`{"arguments":[{"description":"d"}]}`)),
		prompts(prompt(`{"arguments":[{"name":"a","description":"d"},{"name":"a","description":"d"}]}`))},
	"prompt-argument-description": {prompts(prompt(`{"arguments":[{"name":"a"}]}`))},
	"uri-invalid": {resources(resource(`{"uri":"no scheme"}`)),
		resources(resource(`{"uri":"REMOVED"}`))},
	"uri-duplicate": {resources(resource(`{}`), resource(`{}`)),
		templates(template(`{}`), template(`{}`))},
	"template-invalid": {templates(template(`{"uriTemplate":"file:///{"}`)),
		templates(template(`{"uriTemplate":"logs/{day}"}`)), templates(template(`{"uriTemplate":""}`))},
	"template-constant": {templates(template(`{"uriTemplate":"file:///logs"}`))},
	"mime-type-missing": {resources(resource(`{"mimeType":"REMOVED"}`))},
	"mime-type-invalid": {resources(resource(`{"mimeType":"markdown"}`)),
		templates(template(`{"mimeType":"a b/c"}`))},
	"size-invalid": {resources(resource(`{"size":-1}`)), resources(resource(`{"size":"7"}`))},
	"resource-annotations": {resources(resource(`{"annotations":{"audience":["model"]}}`)),
		resources(resource(`{"annotations":{"priority":2}}`)),
		resources(resource(`{"annotations":{"lastModified":"yesterday"}}`))},
	"list-broken": {changed(func(s *lint.Server) { s.Broken = map[string]string{"prompts": "no array"} })},
	"list-order":  {changed(func(s *lint.Server) { s.ToolsAgain = []string{"other"} })},
	"capability-not-served": {changed(func(s *lint.Server) {
		s.Served, s.Capabilities = map[string]bool{"resources.subscribe": false},
			[]byte(`{"resources":{"subscribe":true}}`)
	})},
	"capability-not-declared": {changed(func(s *lint.Server) { s.Served["logging"] = true })},
	"capability-empty": {changed(func(s *lint.Server) {
		s.Served, s.Capabilities = map[string]bool{"prompts": true}, []byte(`{"prompts":{}}`)
	})},
	"server-name-missing": {changed(func(s *lint.Server) { s.Info = []byte(`{"name":"s"}`) })},
	"revision-newest":     {changed(func(s *lint.Server) { s.Supported = []string{"2025-11-25"} })},
	"revision-sessions":   {changed(func(s *lint.Server) { s.Supported = []string{"2026-07-28"} })},
}

func TestEachRuleFires(t *testing.T) {
	for _, r := range lint.Rules() {
		t.Run(r.ID, func(t *testing.T) {
			if len(broken[r.ID]) == 0 {
				t.Fatal("no server breaks this rule")
			}
			for i, s := range broken[r.ID] {
				found := lint.Check(s, nil).Findings
				if len(found) == 0 || slices.ContainsFunc(found, func(f lint.Finding) bool { return f.Rule.ID != r.ID }) {
					t.Errorf("server %d: got %v, want only %s", i, texts(found), r.ID)
				}
				if rest := lint.Check(s, []string{r.ID}); len(rest.Findings) > 0 {
					t.Errorf("server %d: a disabled rule is checked: %v", i, texts(rest.Findings))
				}
			}
		})
	}
}

func texts(found []lint.Finding) (all []string) {
	for _, f := range found {
		all = append(all, f.Rule.ID+": "+f.Where+": "+f.Message)
	}
	return all
}

func TestRulesSayWhatAndWhy(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range lint.Rules() {
		if r.Text == "" || r.Source == "" || r.Fix == "" || seen[r.ID] || lint.Find(r.ID) != r {
			t.Errorf("%+v: want a text, a source, a fix and an id of its own", r)
		}
		seen[r.ID] = true
	}
	if !lint.Error.AtLeast(lint.Warning) || lint.Info.AtLeast(lint.Warning) {
		t.Error("the order of severities is wrong")
	}
}

// Valid forms that a careless rule would report.
func TestValidServersHaveNoFindings(t *testing.T) {
	for name, s := range map[string]*lint.Server{
		"base":     changed(func(s *lint.Server) { s.Prompts, s.Resources = raw(prompt(`{}`)), raw(resource(`{}`)) }),
		"template": templates(template(`{}`), template(`{"uriTemplate":"{+url}"}`)),
		"required in a branch": server(input(`{"type":"object","properties":{"a":{"type":"string","description":"d"},` +
			`"b":{"not":{},"description":"d"}},"not":{"required":["a","b"]}}`)),
		"recursive reference": server(input(`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":` +
			`{"A":{"type":"object","properties":{"next":{"$ref":"#/$defs/A"}}}}}`)),
		"reference into an array": server(input(`{"type":"object","properties":{"a":{"$ref":"#/$defs/A/oneOf/1"}},"$defs":` +
			`{"A":{"oneOf":[{"type":"string"},{"type":"object"}]}}}`)),
		"joined emoji":  server(tool(`{"description":"Return the weather \ud83d\udc69\u200d\ud83d\ude80."}`)),
		"empty, closed": server(input(`{"type":"object","additionalProperties":false}`)),
		"draft-07":      server(input(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","additionalProperties":false}`)),
		"array, 2026": changed(func(s *lint.Server) {
			s.Revision = "2026-07-28"
			s.Tools = raw(tool(`{"outputSchema":{"type":"array"}}`))
		}),
		"oldest": changed(func(s *lint.Server) {
			s.Revision = "2024-11-05"
			s.Tools = raw(tool(`{"annotations":"REMOVED","title":"REMOVED"}`))
		}),
		"not tried":      changed(func(s *lint.Server) { s.Supported = nil }),
		"unicode prompt": prompts(prompt(`{"title":"Überprüfen\n"}`)),
	} {
		if found := lint.Check(s, nil).Findings; len(found) > 0 {
			t.Errorf("%s: %v", name, texts(found))
		}
	}
}

func TestFindingsAreBounded(t *testing.T) {
	s := server()
	for range 3000 {
		s.Tools = append(s.Tools, []byte(`{}`))
	}
	r := lint.Check(s, nil)
	if len(r.Findings) != 1000 || r.Dropped < 2000 || len(r.Costs) != 3000 {
		t.Errorf("%d findings, %d dropped, %d costs, want 1000, more than 2000, 3000", len(r.Findings), r.Dropped,
			len(r.Costs))
	}
}

func TestTokensAreEstimated(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abcd": 1, "abcde": 2, "天気予報": 6, strings.Repeat("word ", 80): 100} {
		if got := lint.Tokens(text); got != want {
			t.Errorf("Tokens(%q) = %d, want %d", text, got, want)
		}
	}
}
