package root

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A runningGateway is a `patchbay gateway` on a port that it has chosen.
type runningGateway struct {
	url, key string
	stop     func() outcome
}

// startGateway runs a gateway, on a terminal if prepare says so.
func startGateway(t *testing.T, prepare func(p *cmdutil.Factory), args ...string) *runningGateway {
	t.Helper()
	read, write := io.Pipe()
	var stdout bytes.Buffer
	var stderr cmdtest.Buffer
	p := newRun(strings.NewReader(""), write, &stderr)
	if prepare != nil {
		prepare(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	status := make(chan int, 1)
	go func() {
		status <- runCommandLine(ctx, p, append([]string{"gateway", "--addr", "127.0.0.1:0"}, args...))
		write.Close()
	}()
	g, found, read2 := &runningGateway{}, make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(read2)
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			stdout.WriteString(lines.Text() + "\n")
			if m := gatewayURL.FindString(lines.Text()); m != "" && g.url == "" {
				g.url = m
				found <- true
			}
		}
		found <- false
	}()
	stop := sync.OnceValue(func() outcome {
		cancel()
		o := outcome{status: <-status}
		<-read2
		o.stdout, o.stderr = stdout.String(), stderr.String()
		return o
	})
	g.stop = stop
	t.Cleanup(func() { stop() })
	if !<-found {
		t.Fatalf("the gateway has not started: %+v", stop())
	}
	v := newRun(strings.NewReader(""), io.Discard, io.Discard)
	var err error
	if g.key, err = run.GatewayKey(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	return g
}

var gatewayURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp[/a-z]*`)

// header returns the arguments that send the key.
func (g *runningGateway) header() []string {
	return []string{"--header", "Authorization: Bearer " + g.key}
}

// demoEntry returns the entry of a demo server that is a child process.
func demoEntry(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"command": exe, "args": []string{},
		"env": map[string]string{serveEnv: "1", "GORACE": "atexit_sleep_ms=0"}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// threeServers writes a configuration with two child processes, a URL and a command that does not
// exist, in the file of an application.
func threeServers(t *testing.T, name, member string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	kind := ""
	if member == "servers" {
		kind = `"type": "http", `
	}
	writeFile(t, file, fmt.Sprintf(`{%q: {"one": %s, "dead": {"command": "/nonexistent/patchbay-test"},
		"web": {%s"url": %q}, "two": %[2]s}}`, member, demoEntry(t), kind, listenHTTP(t, newServer("demo"))))
	return file
}

var sampleTools = []string{"one__add", "web__add", "two__add"}

// useGateway lists the tools of a client and calls one of each server. A list does not have the tools of
// a server that needs more than 5 seconds to start, as on a loaded machine: later lists do.
func useGateway(t *testing.T, c *mcp.Client) {
	t.Helper()
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})
	eventually(t, "the tools of all servers are listed", func() bool {
		tools, err := mcp.Collect(c.Tools(ctx))
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(sampleTools, func(name string) bool {
			return !slices.ContainsFunc(tools, func(tool *mcp.Tool) bool { return tool.Name == name })
		})
	})
	for _, name := range sampleTools {
		res, err := c.CallTool(t.Context(), name, map[string]any{"a": 20, "b": 22})
		if err != nil || res.IsError || res.Text() != "42" {
			t.Errorf("%s: %+v, %v, want 42", name, res, err)
		}
	}
}

// gatewayClient connects to a gateway over HTTP, or HTTP+SSE.
func gatewayClient(t *testing.T, g *runningGateway, revision string, sse bool) *mcp.Client {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: base}
	if sse {
		client.Transport = onlySSE{base}
	}
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(g.url, &mcphttp.TransportOptions{Client: client,
		Header: http.Header{"Authorization": {"Bearer " + g.key}}}), &mcp.ClientOptions{Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onlySSE refuses what clients of HTTP+SSE do not send, so that a client uses that transport.
type onlySSE struct{ http.RoundTripper }

func (o onlySSE) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.RawQuery == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return &http.Response{Status: "405", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1,
			ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return o.RoundTripper.RoundTrip(r)
}

// One gateway serves every revision on every transport, from the configuration of every application. A
// server that does not start does not matter.
func TestGatewayServesConfigurations(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	for name, member := range map[string]string{
		"claude_desktop_config.json": "mcpServers", ".cursor/mcp.json": "mcpServers", ".vscode/mcp.json": "servers",
	} {
		t.Run(name, func(t *testing.T) {
			file := threeServers(t, name, member)
			g := startGateway(t, nil, "--config", file)
			for _, revision := range mcptest.Revisions() {
				for _, sse := range []bool{false, true} {
					if sse && revision != "2024-11-05" {
						continue
					}
					c := gatewayClient(t, g, revision, sse)
					useGateway(t, c)
					if err := c.Close(); err != nil {
						t.Errorf("%s: close: %v", revision, err)
					}
				}
			}
			o := g.stop()
			if o.status != exit.OK || !strings.Contains(o.stderr, "server dead: ") {
				t.Errorf("end: %+v, want %d, and the failure of the dead server", o, exit.OK)
			}
		})
	}
}

// onStdio runs a gateway on stdio and returns a client of it, as bridged does.
func onStdio(t *testing.T, revision string, args ...string) (c *mcp.Client, end func() outcome) {
	t.Helper()
	in, toGateway := io.Pipe()
	fromGateway, out := io.Pipe()
	var stderr cmdtest.Buffer
	status := make(chan int, 1)
	go func() {
		status <- Run(context.Background(), append([]string{"gateway", "--stdio"}, args...), in, out, &stderr)
		in.Close()
		out.Close()
	}()
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(fromGateway, toGateway, nil)),
		&mcp.ClientOptions{Revision: revision})
	if err != nil {
		toGateway.Close()
		t.Fatalf("connect: %v; exit code %d, %s", err, <-status, stderr.String())
	}
	return c, func() outcome {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		return outcome{status: <-status, stderr: stderr.String()}
	}
}

func TestGatewayOnStdio(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := threeServers(t, "mcp.json", "mcpServers")
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			c, end := onStdio(t, revision, "--config", file)
			useGateway(t, c)
			if o := end(); o.status != exit.OK {
				t.Errorf("end: %+v, want %d", o, exit.OK)
			}
		})
	}
}

// A target is served with its own names, whatever its revision.
func TestGatewayOfATarget(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	for name, args := range map[string][]string{
		"URL":        {url},
		"older URL":  {url, "--revision", "2025-03-26"},
		"command":    {"--env", serveEnv + "=1", "--", exe},
		"named":      {"one", "--config", threeServers(t, "mcp.json", "mcpServers")},
		"one server": {"--config", oneServerFile(t)},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, nil, args...)
			for _, revision := range mcptest.Revisions() {
				c := gatewayClient(t, g, revision, false)
				if res, err := c.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
					t.Errorf("%s: %+v, %v, want 3", revision, res, err)
				}
				c.Close()
			}
			if o := g.stop(); o.status != exit.OK {
				t.Errorf("end: %+v, want %d", o, exit.OK)
			}
		})
	}
}

func oneServerFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "one.json")
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`}}`)
	return file
}

// Requirement: SEC-14
func TestGatewayRequiresTheKey(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := oneServerFile(t)
	g := startGateway(t, nil, "--config", file)
	for name, args := range map[string][]string{"no key": nil, "wrong key": {"--header", "Authorization: Bearer " + strings.Repeat("a", 32)}} {
		o := patchbay(t, "", append([]string{"tools", g.url}, args...)...)
		if o.status != exit.Auth || o.stdout != "" {
			t.Errorf("%s: %+v, want %d", name, o, exit.Auth)
		}
	}
	if o := patchbay(t, "", append([]string{"call", g.url, "add", "a=1", "b=2"}, g.header()...)...); o.status != exit.OK || o.stdout != "3\n" {
		t.Errorf("with the key: %+v, want 3", o)
	}
	addr := strings.TrimSuffix(strings.TrimPrefix(g.url, "http://"), connect.Endpoint)
	o := patchbay(t, "", "gateway", "--config", file, "--addr", addr)
	if o.status != exit.Failure || !strings.Contains(o.stderr, "is running already: see \"patchbay gateway status\"") {
		t.Errorf("a second gateway at the address: %+v", o)
	}
	o = g.stop()
	if strings.Contains(o.stdout+o.stderr, g.key) {
		t.Errorf("the key is printed without a terminal: %+v", o)
	}
	if !strings.Contains(o.stdout, os.Getenv(secrets.EnvDir)) || !strings.Contains(o.stdout, "gateway keys new me") ||
		!strings.Contains(o.stderr, "missing key") {
		t.Errorf("%+v, want the place of the key, and the refusal", o)
	}
	again := startGateway(t, nil, "--config", file, "--json")
	if again.key != g.key {
		t.Error("the second gateway has another key")
	}
	var report run.GatewayReport
	if o = again.stop(); json.Unmarshal([]byte(o.stdout), &report) != nil || report.URL != again.url ||
		!slices.Equal(report.Servers, []string{"one"}) || report.Key == nil || report.Key.Dir != os.Getenv(secrets.EnvDir) ||
		strings.Contains(o.stdout, g.key) {
		t.Errorf("--json: %s, want the URL, the server and the place of the key", o.stdout)
	}
}

func TestGatewayPrintsTheKeyOnATerminal(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := oneServerFile(t)
	onTerminal := func(p *cmdutil.Factory) { p.IO.Out.Terminal, p.IO.Err.Terminal, p.IO.Interactive = true, true, true }
	g := startGateway(t, onTerminal, "--config", file)
	o := g.stop()
	for _, want := range []string{`"mcpServers"`, `"servers"`, `"Authorization": "Bearer ` + g.key + `"`, `"url": "` + g.url + `"`,
		`"--stdio"`, `"` + file + `"`} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the output does not contain %s:\n%s", want, o.stdout)
		}
	}
	g = startGateway(t, onTerminal, "--config", file, "--json")
	if o = g.stop(); strings.Contains(o.stdout+o.stderr, g.key) {
		t.Errorf("--json prints the key: %s", o.stdout)
	}
	g = startGateway(t, onTerminal, "--config", file, "--insecure-no-auth")
	if tools := patchbay(t, "", "tools", g.url); tools.status != exit.OK {
		t.Errorf("--insecure-no-auth: %+v, want the tools without a key", tools)
	}
	if o = g.stop(); strings.Contains(o.stdout, "Bearer") {
		t.Errorf("--insecure-no-auth: %s, want no key", o.stdout)
	}
}

func TestGatewayProfile(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`, "two": `+demoEntry(t)+`},
		"patchbay": {"profiles": {"work": {"servers": ["two"]}}}}`)
	g := startGateway(t, nil, "--config", file, "--profile", "work")
	var o outcome
	eventually(t, "the tools of the profile are listed", func() bool {
		o = patchbay(t, "", append([]string{"tools", g.url}, g.header()...)...)
		return strings.Contains(o.stdout, "two__add")
	})
	if !strings.HasSuffix(g.url, "/mcp/p/work") || !strings.Contains(o.stdout, "two__add") || strings.Contains(o.stdout, "one__") {
		t.Errorf("%s: %+v, want the tools of two", g.url, o)
	}
	for _, other := range []string{"/mcp/s/one", "/mcp/s/two"} {
		url := strings.TrimSuffix(g.url, "/mcp/p/work") + other
		if o := patchbay(t, "", append([]string{"tools", url}, g.header()...)...); o.status == exit.OK {
			t.Errorf("%s: %+v, want no tools of other paths", url, o)
		}
	}
	all := strings.TrimSuffix(g.url, "/p/work")
	if o := patchbay(t, "", append([]string{"tools", all}, g.header()...)...); strings.Contains(o.stdout, "one__") {
		t.Errorf("%s: %+v, want the tools of two", all, o)
	}
	if o = patchbay(t, "", "gateway", "--config", file, "--profile", "works"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, "work") {
		t.Errorf("an unknown profile: %+v, want a usage error that names the known one", o)
	}
}

func TestGatewayUsageErrors(t *testing.T) {
	newHostileProject(t)
	file := oneServerFile(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"found no servers", nil},
		{"unexpected argument", []string{"--config", file, "one", "two"}},
		{"missing command after --", []string{"--"}},
		{"unknown server", []string{"--config", file, "other"}},
		{`"patchbay gateway" alone starts`, []string{"--config", file, "start"}},
		{"loopback", []string{"--config", file, "--insecure-no-auth", "--addr", "0.0.0.0:0"}},
		{"opens no port", []string{"--config", file, "--stdio", "--addr", ":0"}},
		{"opens no port", []string{"--config", file, "--stdio", "--insecure-no-auth"}},
		{"for one TARGET", []string{"--config", file, "--header", "A:b"}},
		{"clients answer", []string{"--config", file, "--root", "."}},
		{"does not exist", []string{"--config", "absent.json"}},
	} {
		o := patchbay(t, "", append([]string{"gateway"}, c.args...)...)
		if o.status != exit.Usage || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: %+v, want %d and %q", c.args, o, exit.Usage, c.want)
		}
	}
	if o := patchbay(t, "", "gateway", "--config", file, "--addr", "256.0.0.1:1"); o.status != exit.Failure ||
		!strings.Contains(o.stderr, "--addr") {
		t.Errorf("an address that does not exist: %+v, want %d", o, exit.Failure)
	}
}

// A server of a project file starts only after the user has trusted it. Nothing is asked.
func TestGatewayLeavesOutWhatIsNotTrusted(t *testing.T) {
	p := newHostileProject(t)
	freshVault(t)
	writeProjectFile(t, filepath.Join("config", "patchbay", "mcp.json"), `{"mcpServers": {"mine": `+demoEntry(t)+`}}`)
	c, end := onStdio(t, "")
	if res, err := c.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
		t.Errorf("the user's own server: %+v, %v, want 3", res, err)
	}
	o := end()
	if _, err := os.Stat(p.mark); err == nil || p.requests.Load() != 0 || !strings.Contains(o.stderr, "not trusted") ||
		!strings.Contains(o.stderr, "patchbay trust") {
		t.Errorf("%+v, mark %v, %d requests, want that nothing of the project was used", o, err, p.requests.Load())
	}
	o = atTerminal(t, "y\ny\n", nil, "tools", target.HostName)
	if _, err := os.Stat(p.mark); err == nil || p.requests.Load() != 0 || o.status != exit.OK || !strings.Contains(o.stdout, "add a=") {
		t.Errorf("@host: %+v, mark %v, want that nothing of the project was used", o, err)
	}
	if o = patchbay(t, "", "__complete", "call", target.HostName, ""); o.status != exit.OK || p.requests.Load() != 0 {
		t.Errorf("completion: %+v, want that nothing of the project was used", o)
	}
}

func TestServersOfSeveralFiles(t *testing.T) {
	newHostileProject(t)
	if err := os.Remove(".mcp.json"); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join("config", "patchbay", "mcp.json")
	writeProjectFile(t, own, `{"mcpServers": {"fs": {"command": "a"}, "off": {"command": "x", "disabled": true},
		"gw": {"url": "http://localhost:7777/mcp"}, "self": {"command": "/usr/bin/patchbay", "args": ["gateway", "--stdio"]}},
		"patchbay": {"listen": "127.0.0.1:7779"}}`)
	writeProjectFile(t, filepath.Join(".cursor", "mcp.json"), `{"mcpServers": {"fs": {"command": "a"}, "off": {"command": "y"},
		"db": {"command": "b"}, "this": {"url": "http://127.0.0.1:7779/mcp/p/x"}}, "patchbay": {"listen": "1.2.3.4:1"}}`)
	writeProjectFile(t, filepath.Join(".codeium", "windsurf", "mcp_config.json"), `{"mcpServers": {"fs": {"command": "other"},
		"remote": {"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:7779/mcp"]}}}`)
	var stderr bytes.Buffer
	p := newRun(strings.NewReader(""), io.Discard, &stderr)
	c, err := hosting.ReadHostConfig(p, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.File.Names(), []string{"fs", "db", "off", "windsurf:fs"}; !slices.Equal(got, want) || stderr.Len() > 0 {
		t.Errorf("servers %q, want %q: %s", got, want, stderr.String())
	}
	if got := hosting.GatewayAddr(c.Settings, ""); got != "127.0.0.1:7779" {
		t.Errorf("address %s, want that of the user's settings", got)
	}
	if got := hosting.GatewayAddr(c.Settings, ":1"); got != "127.0.0.1:1" {
		t.Errorf("address %s, want that of the command line", got)
	}
	for name, want := range map[string]string{"db": "cursor:db", "fs": "fs", "windsurf:fs": "windsurf:fs"} {
		s, err := c.File.Server(name)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := c.Target(s); err != nil || at.Name != want {
			t.Errorf("target of %s: %+v, %v, want %s", name, at, err, want)
		}
	}
}

func TestGatewayDoesNotServeItself(t *testing.T) {
	for text, want := range map[string]bool{
		`{"url": "http://127.0.0.1:7777/mcp"}`:                                                true,
		`{"url": "http://localhost:7777/mcp/p/work"}`:                                         true,
		`{"url": "http://[::1]:7777/mcp/s/fs?x=1"}`:                                           true,
		`{"url": "http://127.0.0.1:7778/mcp"}`:                                                false,
		`{"url": "http://127.0.0.1:7777/other"}`:                                              false,
		`{"url": "https://example.com:7777/mcp"}`:                                             false,
		`{"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:7777/mcp"]}`:             true,
		`{"command": "patchbay", "args": ["gateway", "--stdio"]}`:                             true,
		`{"command": "C:/bin/patchbay.exe", "args": ["--config", "x", "gateway"]}`:            true,
		`{"command": "go", "args": ["run", "` + userdir.Self + `@v1", "gateway", "--stdio"]}`: true,
		`{"command": "patchbay", "args": ["bridge", "https://example.com/mcp"]}`:              false,
		`{"command": "gateway", "args": ["--stdio"]}`:                                         false,
		`{"command": "other", "args": ["gateway"]}`:                                           false,
	} {
		f, err := config.Parse([]byte(`{"mcpServers": {"x": ` + text + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Server("x")
		if err != nil {
			t.Fatal(err)
		}
		if got := hosting.IsGateway(s, []string{"7777"}); got != want {
			t.Errorf("%s: isGateway = %t, want %t", text, got, want)
		}
	}
}
