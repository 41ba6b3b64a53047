package values

import (
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
)

const file = `{"mcpServers": {
	"fs": {"command": "node", "args": ["server.js", "--token", "s3cret-argument"],
		"env": {"TOKEN": "s3cret-value", "USER_NAME": "${USER}", "KEY": "${KEY:-s3cret-default}"}},
	"web": {"url": "https://u:s3cret-login@example.com/mcp?key=s3cret-query",
		"headers": {"Authorization": "Bearer s3cret-header"}}},
	"patchbay": {"servers": {"fs": {"timeout": "5s"}}}}`

// Each value names its origin, and no value contains a secret.
func TestValuesHaveOriginsAndNoSecrets(t *testing.T) {
	f, err := config.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	f.Path = "/settings.json"
	c := &hosting.Config{
		Fixed: map[string]*target.Target{"own": {URL: "https://example.com/?s3cret-query",
			Header: http.Header{"X-Key": {"s3cret-header"}}, Environment: []string{"A=s3cret-variable"}}}}
	for _, name := range f.Names() {
		c.Servers = append(c.Servers, config.Entry{Name: name, File: &config.File{Path: "/mcp.json"}})
	}
	for name, want := range map[string][]gateway.ServerValue{
		"fs": {{Name: "command", Value: "node", Origin: "/mcp.json"},
			{Name: "args", Value: `["server.js","--token","***"]`, Origin: "/mcp.json"},
			{Name: "env.TOKEN", Value: "***", Origin: "/mcp.json"},
			{Name: "env.USER_NAME", Value: "${USER}", Origin: "/mcp.json"},
			{Name: "env.KEY", Value: "***", Origin: "/mcp.json"},
			{Name: "timeout", Value: "5s", Origin: "/settings.json"},
			{Name: "startTimeout", Value: "2m0s", Origin: "default"}},
		"web": {{Name: "type", Value: "http", Origin: "/mcp.json"},
			{Name: "url", Value: "https://example.com/mcp?***", Origin: "/mcp.json"},
			{Name: "headers.Authorization", Value: "***", Origin: "/mcp.json"}},
		"own": {{Name: "headers.X-Key", Value: "***", Origin: "command line"},
			{Name: "env.A", Value: "***", Origin: "command line"}},
	} {
		values, err := Of(c, f, name)
		if err != nil {
			t.Fatal(err)
		}
		found := map[gateway.ServerValue]bool{}
		for _, v := range values {
			found[v] = true
			if strings.Contains(v.Value, "s3cret") {
				t.Errorf("%s: %+v contains a secret", name, v)
			}
		}
		for _, v := range want {
			if !found[v] {
				t.Errorf("%s: no %+v in %+v", name, v, values)
			}
		}
	}
	if _, err := Of(c, f, "other"); err == nil {
		t.Error("an unknown server has values")
	}
}
