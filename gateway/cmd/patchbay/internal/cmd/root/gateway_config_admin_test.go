package root

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
)

const maskedConfig = `{
  // the token sk-commentsecret1234567890 is old
  "mcpServers": {
    "web": {"url": "https://user:urlsecret9@example.com/mcp", "headers": {"Authorization": "Bearer headersecret9",
      "X-Plain": "${TOKEN_FROM_ENV}"}},
    "one": {"command": "one", "args": ["--token", "argsecret9", "--verbose"], "env": {"NAME": "envsecret9"}}, // kept
  },
  "patchbay": {"policy": {"rules": [{"name": "no", "on": ["call"], "when": "tool.name == 'delete'", "do": "deny"}]}},
}
`

// adminOf returns a function that sends a request to the running gateway, and returns the problem.
func adminOf(t *testing.T, file string) func(method, path string, body, result any) *gateway.Problem {
	t.Helper()
	p := factoryFor(file)
	c, ok, err := gatewayclient.Find(t.Context(), p)
	if err != nil || !ok {
		t.Fatalf("no gateway: %v", err)
	}
	return func(method, path string, body, result any) *gateway.Problem {
		t.Helper()
		err := c.Do(t.Context(), method, path, body, result)
		if err == nil {
			return nil
		}
		return &gateway.Problem{Detail: err.Error()}
	}
}

// The configuration of the admin API has no secrets. A text with masks is written with the values that
// they stand for, and a mask in another place is refused.
func TestConfigurationIsEditedWithoutItsSecrets(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, maskedConfig)
	startGateway(t, nil, "--config", file)
	send := adminOf(t, file)
	get := func() gateway.ConfigFile {
		t.Helper()
		var res struct{ Files []gateway.ConfigFile }
		if p := send(http.MethodGet, "/config", nil, &res); p != nil || len(res.Files) != 1 {
			t.Fatalf("%+v, %v", res, p)
		}
		text, _ := json.Marshal(res)
		if strings.Contains(string(text), "secret") {
			t.Errorf("the response has a secret: %s", text)
		}
		return res.Files[0]
	}
	f := get()
	for _, want := range []string{"${TOKEN_FROM_ENV}", "--verbose", "// kept", `"command": "one"`} {
		if !strings.Contains(f.Text, want) {
			t.Errorf("text %s\nwant %s in it", f.Text, want)
		}
	}
	if !f.Editable || strings.Join(f.Servers, " ") != "one web" {
		t.Errorf("file %+v", f)
	}
	var r gateway.ConfigResult
	same := gateway.ConfigChange{Text: f.Text, Version: f.Version}
	if p := send(http.MethodPut, "/config", same, &r); p != nil || r.Changed || r.Diff != "" || len(r.Commands) > 0 {
		t.Errorf("the same text: %+v, %v", r, p)
	}
	changed := strings.Replace(f.Text, "--verbose", "--quiet", 1)
	dry := gateway.ConfigChange{Text: changed, Version: f.Version, DryRun: true}
	p := send(http.MethodPut, "/config", dry, &r)
	if p != nil || !r.Changed || r.Backup != "" || !strings.Contains(r.Diff, "--quiet") || len(r.Commands) != 1 ||
		strings.Contains(r.Diff+strings.Join(r.Commands[0], " "), "secret") || textOf(t, file) != maskedConfig {
		t.Errorf("dry run: %+v, %v", r, p)
	}
	if p := send(http.MethodPut, "/config", gateway.ConfigChange{Text: changed, Version: f.Version}, &r); p != nil {
		t.Fatal(p)
	}
	if want := strings.Replace(maskedConfig, "--verbose", "--quiet", 1); textOf(t, file) != want {
		t.Errorf("the file has %s\nwant %s", textOf(t, file), want)
	}
	if old, err := os.ReadFile(r.Backup); err != nil || string(old) != maskedConfig {
		t.Errorf("backup %q: %s, %v", r.Backup, old, err)
	}

	now := get()
	mask := run.MaskText.FindString(now.Text[strings.Index(now.Text, "Authorization"):])
	for what, c := range map[string]gateway.ConfigChange{
		"has changed since":    {Text: now.Text, Version: f.Version},
		"stands for no value":  {Text: strings.Replace(now.Text, `"one"`, `"`+mask+`"`, 2), Version: now.Version},
		"in this place":        {Text: strings.Replace(now.Text, "// kept", "// "+mask, 1), Version: now.Version},
		"nothing was changed":  {Text: `{"mcpServers": {"a": {"command": 5}}}`, Version: now.Version},
		"unknown member \"no":  {Text: `{"mcpServers": {}, "patchbay": {"no": 1}}`, Version: now.Version},
		"unknown member \"nam": {Text: strings.Replace(now.Text, "tool.name ==", "tool.nam ==", 1), Version: now.Version},
		"malformed JSON":       {Text: `{"mcpServers": `, Version: now.Version},
	} {
		if p := send(http.MethodPut, "/config", c, &r); p == nil || !strings.Contains(p.Detail, what) {
			t.Errorf("want an error with %q, got %v", what, p)
		}
	}
	if get().Version != now.Version {
		t.Error("a refused change has changed the file")
	}
	var decision struct{ Do, Rule string }
	body := map[string]any{"server": "one", "target": "delete"}
	if p := send(http.MethodPost, "/policy:explain", body, &decision); p != nil || decision.Do != "deny" ||
		decision.Rule != "no" {
		t.Errorf("decision %+v, %v", decision, p)
	}
}

const ownConfig = `{
  "inputs": [{"id": "dir", "type": "promptString", "default": "/srv"}],
  "mcpServers": {
    "web": {"url": "https://good.example/mcp", "headers": {"Authorization": "Bearer s3cr3t-0123456789",
      "X-Team": "a"}},
    "open": {"url": "https://open.example/mcp"},
    "fs": {"command": "npx", "args": ["srv", "${input:dir}"], "cwd": "/data", "env": {"MODE": "ro"}}
  },
  "patchbay": {"policy": {"rules": [{"do": "hook"}], "hook": {"url": "https://hook.example", "secret": "HOOK"}},
    "audit": {"dir": "audit"}, "console": {"listen": "127.0.0.1:0"}}
}
`

// A change lists new command lines and addresses, and settings that decide who reaches and controls
// the gateway, so that the local user confirms the change and nobody else makes it.
func TestNewCommandLinesAndAddressesAreListed(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	t.Setenv("HOOK", "a-key-of-32-bytes-for-signatures")
	writeFile(t, file, ownConfig)
	startGateway(t, nil, "--config", file)
	send := adminOf(t, file)
	var res struct{ Files []gateway.ConfigFile }
	if p := send(http.MethodGet, "/config", nil, &res); p != nil || len(res.Files) != 1 {
		t.Fatalf("%+v, %v", res, p)
	}
	f := res.Files[0]
	hook, good := `"url": "https://hook.example"`, "https://good.example/mcp"
	settings := `"policy": {`
	for _, c := range []struct{ old, now, want string }{
		{hook, `"command": ["/bin/sh", "-c", "id"]`, `["/bin/sh","-c","id"]`},
		{"https://hook.example", "https://evil.example", `["https://evil.example","(policy hook)"]`},
		{settings, `"webhook": {"url": "https://evil.example", "secret": "HOOK"}, ` + settings,
			`["https://evil.example","(webhook)"]`},
		{settings, `"auth": {"oidc": {"issuer": "https://evil.example", "audience": "a"}}, ` + settings,
			`["https://evil.example","(logins to the gateway)"],["auth","null","→","{\"keys\":true,` +
				`\"oidc\":{\"issuer\":\"https://evil.example\",\"audience\":\"a\",\"insecureAnyTokenType\":false}}"]`},
		{settings, `"servers": {"open": {"oauth": {"issuer": "https://evil.example"}, "auth": "gateway"}}, ` + settings,
			`["https://evil.example","(logins to open)"]`},
		{settings, `"servers": {"open": {"auth": "forward", "forwardHeaders": ["X"], "share": "caller"}}, ` + settings,
			`["https://open.example/mcp","(credentials of open)"],["open","(receives headers of callers)"]`},
		{settings, `"servers": {"open": {"insecureHTTP": true, "trust": "insecureAll", "auth": "gateway", "oauth": ` +
			`{"issuer": "https://i.example", "insecureUnlistedPKCE": true}}}, ` + settings,
			`["https://i.example","(logins to open)"],["open","(insecureHTTP)"],` +
				`["open","(oauth.insecureUnlistedPKCE)"],["open","(trust: insecureAll)"]`},
		{settings, `"servers": {"fs": {"sandbox": {"network": "host"}}}, ` + settings,
			`["npx","srv","${input:dir}","(cwd /data)","(env MODE)","(inputs dir)","(sandbox {\"network\":\"host\"})"]`},
		{settings, `"profiles": {"team": {"servers": ["fs"]}}, ` + settings,
			`["profile team","servers [\"fs\"]","tools null"]`},
		{settings, `"servers": {"open": {"insecureHTTP": false, "trust": "review"}}, ` + settings, ""},
		{good, "https://evil.example/mcp", `["https://evil.example/mcp","(credentials of web)"]`},
		{"https://open.example/mcp", "https://open.example/${file:/etc/hostname}",
			`["https://open.example/${file:/etc/hostname}","${file:/etc/hostname}"],` +
				`["https://open.example/${file:/etc/hostname}","(requests to open)"]`},
		{`"X-Team": "`, `"X-Other": "${AWS_KEY:-none}", "X-Team": "`, `["https://good.example/mcp","${AWS_KEY}"]`},
		{`"X-Team": "`, `"X-Other": "${exec:id}", "X-Team": "`, `["https://good.example/mcp","${exec:id}"],["id"]`},
		{`"/srv"`, `"--require=/tmp/evil.js"`,
			`["npx","srv","${input:dir}","(cwd /data)","(env MODE)","(inputs dir)"]`},
		{`"cwd": "/data"`, `"cwd": "/tmp", "envFile": "x"`,
			`["npx","srv","${input:dir}","(cwd /tmp)","(envFile x)","(env MODE)","(inputs dir)"]`},
		{"https://open.example", "http://10.0.0.1", `["http://10.0.0.1/mcp","(requests to open)"]`},
		{`"open": {`, `"off": {"url": "http://10.0.0.1", "disabled": true}, "open": {`, ""},
		{settings, `"listen": "0.0.0.0:7777", ` + settings,
			`["listen","\"127.0.0.1:7777\"","→","\"0.0.0.0:7777\""]`},
		{settings, `"listen": "127.0.0.1:7777", "names": {"max": 40}, ` + settings, ""},
		{`"dir": "audit"`, `"dir": "/tmp"`, `["audit.dir","\"audit\"","→","\"/tmp\""]`},
		{`"console": {`, `"auth": {"oidc": {"issuer": "https://i.example", "audience": "a", "clientId": "c"}}, ` +
			`"console": {"roles": {"operator": ["eve"]}, `,
			`["https://i.example","(logins to the gateway)"],["auth","null","→","{\"keys\":true,\"oidc\":` +
				`{\"issuer\":\"https://i.example\",\"audience\":\"a\",\"insecureAnyTokenType\":false,` +
				`\"clientId\":\"c\"}}"],` +
				`["console.roles","null","→","{\"claim\":\"groups\",\"operator\":[\"eve\"]}"]`},
		{settings, `"publicURL": "https://evil.example", ` + settings,
			`["publicURL","\"\"","→","\"https://evil.example\""]`},
		{`"X-Team": "`, `"X-Group": "a", "X-Team": "`, ""},
	} {
		changed := strings.Replace(f.Text, c.old, c.now, 1)
		var r gateway.ConfigResult
		p := send(http.MethodPut, "/config", gateway.ConfigChange{Text: changed, Version: f.Version, DryRun: true}, &r)
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		if err := e.Encode(r.Commands); err != nil {
			t.Fatal(err)
		}
		if p != nil || !r.Changed || strings.TrimSpace(got.String()) != "["+c.want+"]" {
			t.Errorf("%s: got %s, %v\nwant [%s]", c.now, got.String(), p, c.want)
		}
	}
}

// Masks of random texts in any place are replaced by the values that they stand for.
func FuzzConfigMask(f *testing.F) {
	f.Add(maskedConfig)
	f.Add(`{"mcpServers":{"a":{"env":{"K":"\"\\"}, "args":["a","--key","x\u0041y"]}}} // ghp_0123456789`)
	f.Add(`/* sk-0123456789abcdef0123 */ {"servers":{"a":{"headers":{"":"x"}}}}`)
	f.Add("[mcp_servers.a]\nenv = {TOKEN = \"abcdefgh\"}\n")
	m := run.NewConfigMask()
	f.Fuzz(func(t *testing.T, text string) {
		masked := m.Masked([]byte(text))
		if _, err := m.Parts([]byte(text)); err != nil || run.MaskText.MatchString(text) {
			return // it is not JSON, or has a mask
		}
		restored, err := m.Restore([]byte(text), masked)
		if err != nil || string(restored) != text {
			t.Fatalf("%q\nmasked %q\nrestored %q, %v", text, masked, restored, err)
		}
	})
}
