package root

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A stored secret reaches the servers that name it and no others, on every path, and no output has it.
func TestGatewaySecrets(t *testing.T) {
	mcptest.NoLeaks(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	const value, second = "s3cret/VALUE+one", "s3cret/VALUE+two"
	file := filepath.Join(t.TempDir(), "mcp.json")
	seen := filepath.Join(t.TempDir(), "seen")
	writeFile(t, file, `{"mcpServers": {"one": `+seenEntry(t, seen, `"TOKEN": "${secret:demo}", `)+`, "two": `+seenEntry(t, seen, "")+`,
		"dead": {"command": "/bin/sh", "args": ["-c", "echo failed with $X >&2; exit 1"], "env": {"X": "${secret:demo}"}},
		"none": {"command": "x", "env": {"X": "${secret:missing}"}}},
		"patchbay": {"audit": {"sync": "record", "args": "full"}}}`)
	var all strings.Builder
	run := func(stdin string, args ...string) outcome {
		t.Helper()
		o := patchbay(t, stdin, append(args, "--config", file)...)
		all.WriteString(o.stdout + o.stderr)
		return o
	}
	if o := run(value+"\n", "gateway", "secret", "set", "demo"); o.status != exit.OK || !strings.Contains(o.stderr, "${secret:demo}") {
		t.Fatalf("set: %+v", o)
	}
	if o := run("", "gateway", "secret", "list"); o.stdout != "demo\tstored\tone, dead\nmissing\tmissing\tnone\n" {
		t.Errorf("list: %+v", o)
	}
	g := startGateway(t, nil, "--config", file, "-v")
	c := gatewayClient(t, g, "", false)
	for _, name := range []string{"one__add", "two__add"} {
		if res, err := c.CallTool(t.Context(), name, map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	awaitLines(t, seen, "TOKEN="+value, "TOKEN=")
	for _, name := range []string{"dead__x", "none__x"} {
		res, err := c.CallTool(t.Context(), name, map[string]any{"a": value})
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = res.Text()
		}
		all.WriteString(text)
		if name == "none__x" && !strings.Contains(text, "gateway secret set missing") {
			t.Errorf("a missing secret: %q, want the command that stores it", text)
		}
	}
	if o := run(second, "gateway", "secret", "set", "demo", "--json"); o.stdout != `{"name":"demo"}`+"\n" {
		t.Errorf("set again: %+v", o)
	}
	awaitLines(t, seen, "TOKEN="+value, "TOKEN=", "TOKEN="+second)
	c.Close()
	stopped := g.stop()
	all.WriteString(stopped.stdout + stopped.stderr)
	if o := run("", "call", "one", "add", "a=1", "b=2", "-v"); !strings.Contains(o.stdout, "3") {
		t.Errorf("call: %+v", o)
	}
	if o := run("", "gateway", "secret", "remove", "demo"); o.status != exit.OK {
		t.Errorf("remove: %+v", o)
	}
	if o := run("", "call", "one", "add", "a=1", "b=2"); o.status == exit.OK || !strings.Contains(o.stderr, `secret "demo" is not set`) {
		t.Errorf("call after remove: %+v", o)
	}
	if o := run("", "gateway", "secret", "remove", "demo"); o.status != exit.NotFound {
		t.Errorf("remove again: %+v, want %d", o, exit.NotFound)
	}
	all.WriteString(auditText(t))
	text := all.String()
	for _, secret := range []string{value, second} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("an output has a secret: …%s", text[max(0, i-200):min(len(text), i+100)])
		}
	}
	for _, want := range []string{"failed with", `{"action":"set secret","secret":"demo"}`, `{"action":"remove secret","secret":"demo"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no output has %q", want)
		}
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv(secrets.EnvDir), "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, path := range files {
		if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), "VALUE") {
			t.Errorf("%s: %v, want no secret in clear text", path, err)
		}
	}
}

// seenEntry returns the entry of a demo server that writes its variable TOKEN into a file when it starts.
func seenEntry(t *testing.T, file, env string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a Unix shell")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"command": "/bin/sh", "args": ["-c", "echo TOKEN=$TOKEN >> %s; exec %s"],
		"env": {%s"%s": "1", "GORACE": "atexit_sleep_ms=0"}}`, file, self, env, serveEnv)
}

// awaitLines waits until a file has lines, in any order.
func awaitLines(t *testing.T, file string, want ...string) {
	t.Helper()
	slices.Sort(want)
	for deadline := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(file)
		if lines := strings.Fields(string(b)); slices.Equal(slices.Sorted(slices.Values(lines)), want) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s has %q, %v, want %q", file, lines, err, want)
		}
		<-time.After(time.Millisecond)
	}
}

func TestGatewaySecretRefusesMistakes(t *testing.T) {
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	for want, c := range map[string][2]string{
		"invalid value of 3 bytes":       {"a", "abc\n"},
		"invalid value of 65537 bytes":   {"a", strings.Repeat("a", 64<<10+1)},
		"text in UTF-8 without NUL":      {"a", "abc\x00d"},
		`invalid name "a b" of a secret`: {"a b", "abcd"},
	} {
		o := patchbay(t, c[1], "gateway", "secret", "set", c[0])
		if o.status != exit.Usage || !strings.Contains(o.stderr, want) || strings.Contains(o.stderr, "abc\x00d") || o.stdout != "" {
			t.Errorf("%q: %+v, want %q", c[0], o, want)
		}
	}
	if o := patchbay(t, "", "gateway", "secret", "set", "a", "value"); o.status != exit.Usage {
		t.Errorf("a value as an argument: %+v, want a usage error", o)
	}
	o := atTerminal(t, "typed-secret\n", nil, "gateway", "secret", "set", "a")
	if o.status != exit.OK || !strings.Contains(o.stderr, "Value of a (hidden): ") || strings.Contains(o.stderr, "typed-secret") {
		t.Errorf("on a terminal: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "secret", "list", "--json"); o.stdout != `{"secrets":[{"name":"a","servers":[],"stored":true}]}`+"\n" {
		t.Errorf("list: %+v", o)
	}
}

// A vault that cannot be read does not end connections: the secret may still be stored.
func TestSecretsOfAnUnreadableVault(t *testing.T) {
	t.Setenv(userdir.EnvState, t.TempDir())
	dir := freshVault(t)
	if o := patchbay(t, "value-one", "gateway", "secret", "set", "demo"); o.status != exit.OK {
		t.Fatalf("set: %+v", o)
	}
	p := newRun(strings.NewReader(""), io.Discard, t.Output())
	look := func(want string, stored bool) {
		t.Helper()
		if value, set, found := p.Vault.Lookup(t.Context(), "secret:demo"); value != want || set != stored || !found {
			t.Errorf("got %q, %t, %t, want %q, %t", value, set, found, want, stored)
		}
	}
	look("value-one", true)
	sealed, err := filepath.Glob(filepath.Join(dir, "*.sealed"))
	if err != nil || len(sealed) != 1 {
		t.Fatal(sealed, err)
	}
	writeFile(t, sealed[0], "not a value")
	look("value-one", true)
	if err := os.Remove(sealed[0]); err != nil {
		t.Fatal(err)
	}
	look("", false)
}

// A running gateway no longer uses a secret that was removed. Other servers keep their connections.
func TestGatewayStopsUsingARemovedSecret(t *testing.T) {
	mcptest.NoLeaks(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	seen := filepath.Join(t.TempDir(), "seen")
	writeFile(t, file, `{"mcpServers": {"one": `+seenEntry(t, seen, `"TOKEN": "${secret:demo}", `)+`,
		"two": `+seenEntry(t, seen, "")+`}}`)
	store := func(value string) {
		if o := patchbay(t, value, "gateway", "secret", "set", "demo", "--config", file); o.status != exit.OK {
			t.Fatalf("set: %+v", o)
		}
	}
	store("value-one")
	g := startGateway(t, nil, "--config", file)
	c := gatewayClient(t, g, "", false)
	call := func(name string) string {
		res, err := c.CallTool(t.Context(), name, map[string]any{"a": 1, "b": 2})
		if err != nil {
			return err.Error()
		}
		return res.Text()
	}
	await := func(name, want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			text := call(name)
			if strings.Contains(text, want) {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("%s: %s, want %s", name, text, want)
			}
		}
	}
	await("one__add", "3")
	await("two__add", "3")
	if o := patchbay(t, "", "gateway", "secret", "remove", "demo", "--config", file); o.status != exit.OK {
		t.Fatalf("remove: %+v", o)
	}
	await("one__add", `secret "demo" is not set`)
	await("two__add", "3")
	awaitLines(t, seen, "TOKEN=value-one", "TOKEN=")
	store("value-two")
	await("one__add", "3")
	awaitLines(t, seen, "TOKEN=value-one", "TOKEN=", "TOKEN=value-two")
	c.Close()
	g.stop()
}
