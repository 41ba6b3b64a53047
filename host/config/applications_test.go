package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// applicationFiles are files as applications write them. Those in other forms are tested with the
// command that reads them.
var applicationFiles = map[string]string{
	"Claude Desktop": `{"globalShortcut": "", "mcpServers": {"filesystem": {"command": "npx",
		"args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ann/Desktop"], "env": {"APPDATA": "x"}}}}`,
	"Claude Code": `{"mcpServers": {
		"api": {"type": "http", "url": "https://mcp.example.com", "headers": {"X-Region": "eu"},
			"headersHelper": "/opt/bin/get-mcp-auth-headers.sh"},
		"db": {"type": "stdio", "command": "npx", "args": ["-y", "db"], "env": {"DB_URL": "${DB_URL:-postgres://localhost}"}}}}`,
	"Cursor": `{"mcpServers": {
		"linear": {"url": "https://mcp.linear.app/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
		"tools": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/tools.py"],
			"env": {"API_KEY": "${env:API_KEY}"}, "envFile": ".env"}}}`,
	"VS Code": `{
		"inputs": [
			{"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
			{"type": "pickString", "id": "region", "description": "Region", "options": ["eu", "us"], "default": "eu"},
		],
		"servers": {
			"github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
			// a local server
			"perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask", "${input:region}"],
				"env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"}, "dev": {"watch": "src/**"}},
		}
	}`,
	"Windsurf": `{"mcpServers": {"remote": {"serverUrl": "https://mcp.example.com/mcp",
		"headers": {"API_KEY": "${file:key.txt}"}, "disabledTools": ["delete"], "disabled": false}}}`,
	"Cline": `{"mcpServers": {
		"linear": {"type": "streamableHttp", "url": "https://mcp.linear.app/mcp", "autoApprove": ["list_issues"],
			"alwaysAllow": ["tool1"], "timeout": 60, "disabled": true}}}`,
	"Gemini": `{"mcpServers": {"cloud": {"httpUrl": "https://cloud.example/mcp", "timeout": 5000, "trust": true,
		"includeTools": ["read"], "excludeTools": ["write"]}}}`,
	"LM Studio": `{"mcpServers": {"hf": {"url": "https://huggingface.co/mcp", "headers": {"Authorization": "Bearer x"}}}}`,
	"opencode": `{"mcpServers": {
		"local": {"type": "local", "command": ["bun", "x", "server"], "environment": {"A": "1"}, "enabled": true},
		"remote": {"type": "remote", "url": "https://mcp.context7.com/mcp", "enabled": false}}}`,
	"FastMCP": `{"mcpServers": {"a": {"transport": "sse", "url": "https://example.com/sse"},
		"b": {"transport": "stdio", "command": "uv", "args": ["run", "b.py"]}}}`,
	"Continue": `{"mcpServers": {"a": {"transport": {"type": "stdio"}, "command": "x"}}}`,
}

func TestFilesOfApplications(t *testing.T) {
	const claude, linear = "https://mcp.example.com", "https://mcp.linear.app/mcp"
	want := map[string][]config.Server{
		"Claude Desktop": {{Name: "filesystem", Type: config.TypeStdio, Command: "npx",
			Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/Users/ann/Desktop"},
			Env:  map[string]string{"APPDATA": "x"}}},
		"Claude Code": {{Name: "api", Type: config.TypeHTTP, URL: claude, Header: map[string]string{"X-Region": "eu"},
			HeaderCommand: "/opt/bin/get-mcp-auth-headers.sh"},
			{Name: "db", Type: config.TypeStdio, Command: "npx", Args: []string{"-y", "db"},
				Env: map[string]string{"DB_URL": "${DB_URL:-postgres://localhost}"}}},
		"Cursor": {{Name: "linear", Type: config.TypeHTTP, URL: linear,
			Header: map[string]string{"Authorization": "Bearer ${env:TOKEN}"}},
			{Name: "tools", Type: config.TypeStdio, Command: "python", Args: []string{"${workspaceFolder}/tools.py"},
				Env: map[string]string{"API_KEY": "${env:API_KEY}"}, EnvFile: ".env"}},
		"VS Code": {{Name: "github", Type: config.TypeHTTP, URL: "https://api.githubcopilot.com/mcp/"},
			{Name: "perplexity", Type: config.TypeStdio, Command: "npx",
				Args: []string{"-y", "server-perplexity-ask", "${input:region}"},
				Env:  map[string]string{"PERPLEXITY_API_KEY": "${input:perplexity-key}"},
				Inputs: []config.Input{{ID: "perplexity-key", Description: "Perplexity API Key", Password: true},
					{ID: "region", Description: "Region", Options: []string{"eu", "us"}, Default: "eu"}}}},
		"Windsurf": {{Name: "remote", Type: config.TypeHTTP, URL: "https://mcp.example.com/mcp",
			Header: map[string]string{"API_KEY": "${file:key.txt}"}, ExcludedTools: []string{"delete"}}},
		"Cline": {{Name: "linear", Type: config.TypeHTTP, URL: linear, Disabled: true}},
		"Gemini": {{Name: "cloud", Type: config.TypeHTTP, URL: "https://cloud.example/mcp",
			AllowedTools: []string{"read"}, ExcludedTools: []string{"write"}}},
		"LM Studio": {{Name: "hf", Type: config.TypeHTTP, URL: "https://huggingface.co/mcp",
			Header: map[string]string{"Authorization": "Bearer x"}}},
		"opencode": {{Name: "local", Type: config.TypeStdio, Command: "bun", Args: []string{"x", "server"},
			Env: map[string]string{"A": "1"}},
			{Name: "remote", Type: config.TypeHTTP, URL: "https://mcp.context7.com/mcp", Disabled: true}},
		"FastMCP": {{Name: "a", Type: config.TypeSSE, URL: "https://example.com/sse"},
			{Name: "b", Type: config.TypeStdio, Command: "uv", Args: []string{"run", "b.py"}}},
		"Continue": {{Name: "a", Type: config.TypeStdio, Command: "x"}},
	}
	for app, text := range applicationFiles {
		f, got := parse(t, text), []config.Server{}
		for _, name := range f.Names() {
			s, err := f.Server(name)
			if err != nil {
				t.Fatalf("%s: %v", app, err)
			}
			got = append(got, *s)
		}
		if diff := cmp.Diff(want[app], got, cmpopts.IgnoreFields(config.Server{}, "Extra"),
			cmpopts.IgnoreUnexported(config.Server{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", app, diff)
		}
	}
}

// Members that allow calls without a question are kept, and change nothing.
func TestAutoApproveGrantsNothing(t *testing.T) {
	entry := func(more string) string { return `{"servers": {"a": {"command": "x"` + more + `}}}` }
	f := parse(t, entry(`, "autoApprove": ["*"], "alwaysAllow": ["delete"], "trust": true`))
	s, err := f.Server("a")
	if err != nil || string(s.Extra["autoApprove"]) != `["*"]` || string(s.Extra["alwaysAllow"]) != `["delete"]` {
		t.Errorf("got %s, %v, want the members unchanged", s.Extra, err)
	}
	if diff := cmp.Diff(settings(t, entry("")), settings(t, entry(`, "autoApprove": ["*"], "trust": true`))); diff != "" {
		t.Errorf("with autoApprove (-without +with):\n%s", diff)
	}
}

func TestMembersOfEntriesInOtherForms(t *testing.T) {
	for entry, want := range map[string]string{
		`"command": ["a", "b"], "args": ["c"]`: `a b c`,
		`"args": ["c"], "command": ["a", "b"]`: `a b c`,
		`"command": "a", "args": null`:         `a`,
		`"command": []`:                        `!command: must have at least one element`,
		`"command": [1]`:                       `!command: element 0: must be a string`,
		`"url": "x", "serverUrl": "y"`:         `!serverUrl: the same as url: keep one of them`,
		`"env": {}, "environment": {}`:         `!environment: the same as env: keep one of them`,
		`"type": "http", "transport": "sse"`:   `!transport: the same as type: keep one of them`,
		`"httpUrl": 1`:                         `!httpUrl: must be a string`,
		`"command": "a", "allowedTools": {}`:   `!allowedTools: must be an array`,
		`"command": "a", "transport": "ws"`:    `!transport: invalid value "ws"`,
	} {
		s, err := parse(t, `{"servers": {"s": {`+entry+`}}}`).Server("s")
		if problem, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), `server "s": `+problem) {
				t.Errorf("%s: got %v, want %s", entry, err, problem)
			}
		} else if err != nil || strings.Join(append([]string{s.Command}, s.Args...), " ") != want {
			t.Errorf("%s: got %+v, %v, want %s", entry, s, err, want)
		}
	}
}
