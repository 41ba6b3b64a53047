package conformance_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const thinking = "node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js"

// An officialClient is a client of another SDK, in one era.
type officialClient struct {
	name, revision string
	script         string // in TypeScript
	connect        func(context.Context, gatewayPlan, *goHost) (goClient, error)
	lossy          bool // drops a notification that arrives together with the response
}

var officialClients = []officialClient{
	{name: "typescript-1", revision: "2025-11-25", script: "clients/gateway_session.mjs", lossy: true},
	{name: "typescript-2", revision: "2026-07-28", script: "clients/gateway_modern.mjs", lossy: true},
	{name: "gosdk", revision: "2026-07-28", connect: connectGoSDK("")},
	{name: "gosdk-session", revision: "2025-11-25", connect: connectGoSDK("2025-11-25")},
	{name: "mcpgo", revision: "2026-07-28", connect: connectMCPGo(false)},
	{name: "mcpgo-session", revision: "2025-11-25", connect: connectMCPGo(true)},
}

// run runs the exercise.
func (c officialClient) run(t *testing.T, plan gatewayPlan) *gatewayReport {
	t.Helper()
	const limit = time.Minute
	if c.script == "" {
		return must(runGoClient(within(t, limit), plan, c.connect))(t)
	}
	out, err := node(t, limit, c.script, string(must(json.Marshal(plan))(t)))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report gatewayReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return &report
}

// A freshMachine has the servers that the configurations name.
type freshMachine struct {
	t                *testing.T
	patchbay, node   string
	remote, fixtures string // URLs
	want             listing
	plain            listing // of the server everything alone
	checks, passed   atomic.Int64
}

var plannedServers = []plannedServer{{"everything", "everything"}, {"remote", "everything"},
	{"filesystem", "filesystem"}, {"memory", "memory"}, {"sequential-thinking", "thinking"}, {"fixtures", "fixtures"}}

// TestGatewayFreshStart starts `patchbay gateway` with a configuration file as each application writes
// it, and uses all servers with all official clients, over HTTP and stdio, with the client
// configuration that the gateway prints.
func TestGatewayFreshStart(t *testing.T) {
	t.Setenv("TEAM", "blue")
	m := newFreshMachine(t)
	t.Run("all", func(t *testing.T) {
		for style, file := range map[string]string{"claude": claudeFile, "cursor": cursorFile, "vscode": vsCodeFile} {
			t.Run(style, func(t *testing.T) {
				t.Parallel()
				m.useStyle(t, style, file)
			})
		}
	})
	t.Logf("%d checks, %d passed", m.checks.Load(), m.passed.Load())
}

func newFreshMachine(t *testing.T) *freshMachine {
	m := &freshMachine{t: t, node: needNode(t), patchbay: build(t, "..", "./gateway/cmd/patchbay")}
	m.fixtures = start(t, build(t, ".", "./server"))
	m.remote = startEverything(t, m.node, "streamableHttp") + "/mcp"
	ctx := within(t, time.Minute)
	dir := t.TempDir()
	listed := map[string]listing{}
	for name, transport := range map[string]mcp.Transport{
		"everything": overStdio(m.node, everything, "stdio")(t), "filesystem": overStdio(m.node, filesystem, dir)(t),
		"memory": overStdio(m.node, memory)(t), "sequential-thinking": overStdio(m.node, thinking)(t),
		"fixtures": overHTTP(m.fixtures)(t),
	} {
		listed[name] = listDirectly(ctx, t, dial(ctx, t, transport, newHost().options(t, "")))
	}
	// The gateway declares tasks of the client to servers over stdio and HTTP.
	l := listed["everything"]
	l.tools = append(l.tools, "trigger-elicitation-request-async", "trigger-sampling-request-async")
	listed["everything"] = l
	m.plain = listed["everything"]
	for _, s := range plannedServers {
		l := listed[s.Name]
		if s.Name == "remote" {
			l = mapped(listed["everything"], s.Name)
		}
		for _, tool := range l.tools {
			m.want.tools = append(m.want.tools, s.Name+"__"+tool)
		}
		for _, p := range l.prompts {
			m.want.prompts = append(m.want.prompts, s.Name+"__"+p)
		}
		m.want.resources = append(m.want.resources, l.resources...)
		m.want.templates = append(m.want.templates, l.templates...)
	}
	return m
}

// listDirectly returns the lists of a server.
func listDirectly(ctx context.Context, t *testing.T, c *mcp.Client) (l listing) {
	for v, err := range c.Tools(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		l.tools = append(l.tools, v.Name)
	}
	caps := c.Capabilities()
	if caps.Prompts != nil {
		l.prompts = names(t, c.Prompts(ctx), func(v *mcp.Prompt) string { return v.Name })
	}
	if caps.Resources != nil {
		l.resources = names(t, c.Resources(ctx), func(v *mcp.Resource) string { return v.URI })
		l.templates = names(t, c.ResourceTemplates(ctx), func(v *mcp.ResourceTemplate) string { return v.URITemplate })
	}
	return l
}

// mapped returns the lists of a server whose URIs are in use by an earlier one.
func mapped(l listing, name string) listing {
	l.resources = append([]string{}, l.resources...)
	for i, uri := range l.resources {
		l.resources[i] = "patchbay://" + name + "/" + strings.NewReplacer(":", "%3A", "/", "%2F").Replace(uri)
	}
	l.templates = append([]string{}, l.templates...)
	for i, template := range l.templates {
		l.templates[i] = "patchbay://" + name + "/" + template
	}
	return l
}

// useStyle uses a configuration file with every client. Clients of one gateway share the processes of
// the servers, which have switches, so they run one after the other.
func (m *freshMachine) useStyle(t *testing.T, style, config string) {
	dir := must(filepath.EvalSymlinks(t.TempDir()))(t)
	file := filepath.Join(dir, style+".json")
	if err := os.WriteFile(file, []byte(m.fill(config, dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		g := startGateway(t, m.patchbay, "--config", file, "--addr", "127.0.0.1:0")
		for _, c := range officialClients {
			plan := gatewayPlan{Kind: "http", URL: g.url, Key: g.key, Root: "file://" + dir,
				ID: style + "-http-" + c.name, Servers: plannedServers}
			t.Run(c.name, func(t *testing.T) { m.judge(t, c, plan, m.want) })
			plan.URL, plan.Plain, plan.Servers = g.url+"/s/everything", true, plannedServers[:1]
			plan.ID += "-single"
			t.Run(c.name+" of one server", func(t *testing.T) { m.judge(t, c, plan, m.plain) })
		}
	})
	for _, c := range officialClients {
		t.Run("stdio/"+c.name, func(t *testing.T) {
			t.Parallel()
			plan := gatewayPlan{Kind: "stdio", Root: "file://" + dir, ID: style + "-stdio-" + c.name, Servers: plannedServers,
				Command: []string{m.patchbay, "gateway", "--stdio", "--own", "--config", file}} // with servers of its own
			m.judge(t, c, plan, m.want)
		})
	}
}

func (m *freshMachine) judge(t *testing.T, c officialClient, plan gatewayPlan, want listing) {
	j := &judge{t: t}
	begin := time.Now()
	j.report(c.run(t, plan), plan, want, c.revision, c.lossy)
	m.checks.Add(int64(j.checks))
	m.passed.Add(int64(j.passed))
	t.Logf("%d of %d checks passed in %.1f s", j.passed, j.checks, time.Since(begin).Seconds())
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// fill replaces the @NAMES@ in a configuration.
func (m *freshMachine) fill(file, dir string) string {
	quote := func(text string) string { return string(must(json.Marshal(text))(m.t)) }
	return strings.NewReplacer("@NODE@", quote(m.node), "@EVERYTHING@", quote(absolute(everything)),
		"@FILESYSTEM@", quote(absolute(filesystem)), "@MEMORY@", quote(absolute(memory)), "@THINKING@", quote(absolute(thinking)),
		"@GRAPH@", quote(filepath.Join(dir, "memory.jsonl")), "@DIR@", quote(dir), "@REMOTE@", quote(m.remote),
		"@FIXTURES@", quote(m.fixtures)).Replace(file)
}

// claudeFile is a configuration in the form of claude_desktop_config.json and .mcp.json.
const claudeFile = `{
  "globalShortcut": "",
  "mcpServers": {
    "everything": {"command": @NODE@, "args": [@EVERYTHING@, "stdio"]},
    "filesystem": {"command": @NODE@, "args": [@FILESYSTEM@, @DIR@]},
    "memory": {"command": @NODE@, "args": [@MEMORY@], "env": {"MEMORY_FILE_PATH": @GRAPH@}},
    "sequential-thinking": {"command": @NODE@, "args": [@THINKING@], "env": {}},
    "remote": {"type": "http", "url": @REMOTE@},
    "fixtures": {"type": "http", "url": @FIXTURES@, "headers": {"X-Team": "blue"}}
  }
}
`

// cursorFile is a configuration in the form of .cursor/mcp.json.
const cursorFile = `{
  "mcpServers": {
    "everything": {"command": @NODE@, "args": [@EVERYTHING@, "stdio"], "env": {"TEAM": "${env:TEAM}"}},
    "filesystem": {"command": @NODE@, "args": [@FILESYSTEM@, @DIR@]},
    "memory": {"command": @NODE@, "args": [@MEMORY@], "env": {"MEMORY_FILE_PATH": @GRAPH@}},
    "sequential-thinking": {"command": @NODE@, "args": [@THINKING@]},
    "remote": {"url": @REMOTE@, "headers": {"X-Team": "${env:TEAM}"}},
    "fixtures": {"url": @FIXTURES@}
  }
}
`

// vsCodeFile is a configuration in the form of .vscode/mcp.json.
const vsCodeFile = `{
  // Comments and trailing commas are usual here.
  "inputs": [
    {"type": "pickString", "id": "team", "description": "Team", "options": ["red", "blue"], "default": "blue"},
  ],
  "servers": {
    "everything": {"type": "stdio", "command": @NODE@, "args": [@EVERYTHING@, "stdio"], "env": {"TEAM": "${input:team}"}},
    "filesystem": {"type": "stdio", "command": @NODE@, "args": [@FILESYSTEM@, @DIR@]},
    "memory": {"type": "stdio", "command": @NODE@, "args": [@MEMORY@], "env": {"MEMORY_FILE_PATH": @GRAPH@}},
    "sequential-thinking": {"command": @NODE@, "args": [@THINKING@]},
    "remote": {"type": "http", "url": @REMOTE@},
    "fixtures": {"type": "http", "url": @FIXTURES@, "headers": {"X-Team": "blue"}},
  },
}
`
