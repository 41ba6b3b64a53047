package gatewayconfig_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

var update = flag.Bool("update", false, "rewrite docs/patchbay.schema.json")

func TestPublishedSchemaIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := json.Indent(&want, gatewayconfig.Schema(), "", "  "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	path := filepath.Join("..", "..", "docs", "patchbay.schema.json")
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date (%v): run go test ./gateway/gatewayconfig -update", path, err)
	}
}

// A host that reads a file for a gateway ignores each setting of the gateway, and the names of these
// settings do not resemble a setting of the host.
func TestHostIgnoresTheSettingsOfTheGateway(t *testing.T) {
	var s struct {
		Properties struct {
			Patchbay struct {
				Properties map[string]struct{} `json:"properties"`
			} `json:"patchbay"`
		} `json:"properties"`
	}
	names := func(schema json.RawMessage) map[string]struct{} {
		s.Properties.Patchbay.Properties = nil
		if err := json.Unmarshal(schema, &s); err != nil {
			t.Fatal(err)
		}
		return s.Properties.Patchbay.Properties
	}
	all, host := names(gatewayconfig.Schema()), names(config.Schema(new(config.Settings)))
	if len(all) <= len(host) || len(host) == 0 {
		t.Fatalf("%d settings, of them %d of the host", len(all), len(host))
	}
	for name := range all {
		_, isOfHost := host[name]
		if _, err := parse(t, `{"`+name+`": 1}`).Settings(); (err != nil) != isOfHost {
			t.Errorf("%s is of the host: %t; Settings returns %v", name, isOfHost, err)
		}
	}
}

// The published schema accepts every file that the package accepts, and an error has its place.
func FuzzSettings(f *testing.F) {
	f.Add(`{"listen": "[::1]:0", "ops": "127.0.0.1:1", "pprof": true, "publicURL": "https://x", "allowedHosts": ["a:1"]}`)
	f.Add(`{"auth": {"oidc": {"issuer": "https://x", "audience": "a", "profiles": {"s": "p"}}}, "profiles": {"p": {}}}`)
	f.Add(`{"policy": {"rules": [{"do": "ask", "via": "webhook"}]}, "webhook": {"url": "https://x", "secret": "K"}, "audit": {}}`)
	place := regexp.MustCompile(`^line \d+, column \d+: patchbay`)
	schema, err := jsonschema.Compile(gatewayconfig.Schema())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, settings string) {
		text := []byte(`{"servers": {"a": {"command": "x"}}, "patchbay": ` + settings + `}`)
		file, err := config.Parse(text)
		if err != nil {
			return
		}
		got, err := gatewayconfig.Read(file)
		if err != nil {
			if !place.MatchString(err.Error()) || len(err.Error()) > 16<<10 {
				t.Errorf("error %.500q, want a line, a column and the member", err)
			}
			return
		}
		if plain, err := config.Plain(text); err != nil || schema.Validate(plain) != nil &&
			!bytes.Contains(text, []byte("inputs")) {
			t.Errorf("the schema refuses %s", settings)
		}
		if got.Listen == "" || len(got.Servers) != 1 || got.Profiles == nil {
			t.Errorf("got %+v", got)
		}
	})
}
