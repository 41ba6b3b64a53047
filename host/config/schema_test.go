package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// validator compiles the schema with another implementation.
func validator(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema(new(config.Settings))))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	const name = "https://example.com/patchbay.schema.json"
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	plain, err := config.Plain([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// What the schema accepts, this package accepts, and the other way round.
func TestSchemaAcceptsWhatThePackageAccepts(t *testing.T) {
	s := validator(t)
	valid := []string{fullSettings, `{"mcpServers": {}}`, `{"servers": {}, "other": 1, "inputs": []}`,
		`{"servers": {"a": {"command": "x", "unknown": {}}}, "patchbay": {"servers": {"a": {"roots": []}}}}`,
		`{"$schema": "x", "servers": {"a": {"url": "x", "headers": {"A": 1}}}}`}
	for _, text := range applicationFiles {
		valid = append(valid, text)
	}
	for _, text := range valid {
		if err := validate(t, s, text); err != nil {
			t.Errorf("%.300s: schema: %v", text, err)
		}
		if _, err := parse(t, text).Settings(); err != nil {
			t.Errorf("%.300s: Settings: %v", text, err)
		}
	}
	for _, settings := range []string{`[]`, `{"nmaes": {}}`, `{"names": {"max": 8}}`, `{"servers": {"a": {"timeout": "60"}}}`,
		`{"servers": {"a": {"roots": "all"}}}`, `{"servers": {"a": {"roots": ["/srv"]}}}`,
		`{"servers": {"a": {"limits": {"memory": "1 GB"}}}}`, `{"profiles": {"p": {"tool": []}}}`} {
		text := `{"servers": {"a": {"command": "x"}}, "patchbay": ` + settings + `}`
		if err := validate(t, s, text); err == nil {
			t.Errorf("schema accepts %s", text)
		}
		if _, err := parse(t, text).Settings(); err == nil {
			t.Errorf("Settings accepts %s", text)
		}
	}
	for _, text := range []string{`{}`, `{"servers": []}`, `{"servers": {"a": 1}}`, `{"servers": {"a": {"command": 1}}}`,
		`{"servers": {"a": {"type": "carrier-pigeon"}}}`, `{"servers": {}, "inputs": [{"type": "promptString"}]}`} {
		if err := validate(t, s, text); err == nil {
			t.Errorf("schema accepts %s", text)
		}
	}
}

// The file and the error in docs/configurations.md are those of the package.
func TestDocumentedSettings(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "configurations.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(guide), "```"+language+"\n")
		text, _, _ := strings.Cut(rest, "```")
		return text
	}
	text := block("json")
	if err := validate(t, validator(t), text); err != nil {
		t.Error(err)
	}
	if s := settings(t, text); !slices.Equal(s.Servers["files"].Deny, []string{"delete_*"}) {
		t.Errorf("got %+v", s.Servers["files"])
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile(".mcp.json", []byte(strings.Replace(text, `"deny"`, `"dney"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(".mcp.json")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSuffix(block("text"), "…\n")
	if _, err := f.Settings(); err == nil || want == "" || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
