package root

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/keys"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// keysConfig writes a configuration with two demo servers, a profile and an audit log.
func keysConfig(t *testing.T) (file string) {
	t.Helper()
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	file = filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`, "two": `+demoEntry(t)+`},
		"patchbay": {"profiles": {"work": {"servers": ["two"]}}, "audit": {"sync": "record", "args": "full"}}}`)
	return file
}

// A newKey is the output of `gateway keys new`.
type newKeyOutput struct {
	Name, Principal, Key, URL string
	Expires                   time.Time
	Config                    struct {
		Servers map[string]struct {
			URL     string
			Headers map[string]string
		} `json:"mcpServers"`
	}
}

func createKey(t *testing.T, file string, args ...string) (k newKeyOutput) {
	t.Helper()
	args = append([]string{"gateway", "keys", "new", "--json", "--config", file}, args...)
	if !slices.Contains(args, "--server") && !slices.Contains(args, "--profile") {
		args = append(args, "--all-servers")
	}
	o := patchbay(t, "", args...)
	if err := json.Unmarshal([]byte(o.stdout), &k); err != nil || o.status != exit.OK {
		t.Fatalf("keys new %q: %+v, %v", args, o, err)
	}
	return k
}

// keyClient connects with a key.
func keyClient(t *testing.T, url, key string) (*mcp.Client, error) {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return mcp.Connect(t.Context(), mcphttp.NewTransport(url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: base}, Header: http.Header{"Authorization": {"Bearer " + key}}}), nil)
}

// Keys are made before a gateway runs and while it runs, limit their clients, and are revoked while it
// runs. No output but that of keys new has them.
func TestGatewayKeys(t *testing.T) {
	mcptest.NoLeaks(t)
	file := keysConfig(t)
	before := createKey(t, file, "ann")
	if before.Principal != "ann" || before.Config.Servers["patchbay"].Headers["Authorization"] != "Bearer "+before.Key ||
		time.Until(before.Expires) < 89*24*time.Hour {
		t.Errorf("key %+v, want the principal, a configuration, and 90 days", before)
	}
	g := startGateway(t, nil, "--config", file, "-v")
	running := createKey(t, file, "build", "--principal", "ann", "--server", "one", "--expires", "12h")
	profile := createKey(t, file, "work", "--profile", "work", "--expires", "never")
	if !strings.HasSuffix(profile.URL, "/mcp/p/work") {
		t.Errorf("URL %q, want that of the profile", profile.URL)
	}
	for _, c := range []struct{ key, path, has, lacks string }{
		{before.Key, "", "one__add two__add", "x"}, {running.Key, "", "one__add", "two__add"},
		{profile.Key, "", "two__add", "one__add"}, {profile.Key, "/p/work", "two__add", "one__add"},
	} {
		client, err := keyClient(t, g.url+c.path, c.key)
		if err != nil {
			t.Fatal(err)
		}
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})
		eventually(t, "the tools "+c.has+" are listed at "+c.path, func() bool {
			names := " "
			for tool, err := range client.Tools(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				names += tool.Name + " "
			}
			if strings.Contains(names, " "+c.lacks+" ") {
				t.Fatalf("%s: tools %q, want %q and not %q", c.path, names, c.has, c.lacks)
			}
			return !slices.ContainsFunc(strings.Fields(c.has), func(name string) bool {
				return !strings.Contains(names, " "+name+" ")
			})
		})
		for name := range strings.FieldsSeq(c.has) {
			if res, err := client.CallTool(t.Context(), name, map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		client.Close()
	}
	if o := patchbay(t, "", "gateway", "keys", "revoke", "ann", "nobody", "--config", file); o.status != exit.NotFound ||
		!strings.Contains(o.stdout, "Revoked: ann.") || !strings.Contains(o.stderr, `unknown key "nobody"`) {
		t.Errorf("revoke: %+v, want one revoked and one unknown", o)
	}
	awaitRefusal(t, g.url, before.Key)
	var o outcome
	eventually(t, "two keys are listed, and the use of the first, which is written in the background", func() bool {
		o = patchbay(t, "", "gateway", "keys", "list", "--json", "--config", file)
		var list struct{ Keys []keys.KeyReport }
		if err := json.Unmarshal([]byte(o.stdout), &list); err != nil || len(list.Keys) != 2 {
			t.Fatalf("list: %+v, want two keys", o)
		}
		return list.Keys[0].Used != nil
	})
	text := g.stop()
	all := o.stdout + text.stdout + text.stderr + auditText(t)
	for _, secret := range []string{before.Key, running.Key, profile.Key} {
		if strings.Contains(all, strings.TrimPrefix(secret, "patchbay_")) {
			t.Errorf("an output or a record has a key:\n%s", all)
		}
	}
	for _, want := range []string{`"action":"create key"`, `"action":"revoke key"`, `"outcome":"accepted"`,
		`"reason":"revoked key","key":"ann","remote":"127.0.0.1"`, `"caller":"ann patchbay:key","key":"build","client":`} {
		if !strings.Contains(all, want) {
			t.Errorf("the audit log has no %s:\n%s", want, all)
		}
	}
}

// awaitRefusal waits until a key is refused.
func awaitRefusal(t *testing.T, url, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatalf("the revoked key is still accepted: %v", err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusUnauthorized {
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			return
		}
	}
}

// auditText returns all files of the audit log.
func auditText(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv(userdir.EnvState), "audit", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no audit log: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	return text
}

func TestGatewayKeysRefusesMistakes(t *testing.T) {
	file := keysConfig(t)
	createKey(t, file, "ann")
	for want, args := range map[string][]string{
		`unknown profile "wirk": did you mean "work"`: {"x", "--profile", "wirk"},
		`unknown server "three"`:                      {"x", "--server", "three"},
		`--only: unknown kind "tool": did you mean`:   {"x", "--all-servers", "--only", "tool"},
		`invalid --expires "0d": want a duration`:     {"x", "--all-servers", "--expires", "0d"},
		`invalid --expires "soon"`:                    {"x", "--all-servers", "--expires", "soon"},
		`invalid --expires "-5h"`:                     {"x", "--all-servers", "--expires", "-5h"},
		`invalid name "a/b" of a key`:                 {"a/b", "--all-servers"},
		`key ann exists`:                              {"ann", "--all-servers"},
		`missing servers that the key opens`:          {"x"},
	} {
		o := patchbay(t, "", append([]string{"gateway", "keys", "new", "--config", file}, args...)...)
		if o.status == exit.OK || !strings.Contains(o.stderr, want) || o.stdout != "" {
			t.Errorf("%q: %+v, want %q", args, o, want)
		}
	}
	if o := patchbay(t, "", "gateway", "keys", "new", "bob", "--all-servers", "--config", file, "--only", "tools,prompts", "--read-only"); o.status != exit.OK ||
		!strings.Contains(o.stdout, "Key of bob (only tools, prompts; read only; expires ") || !strings.Contains(o.stdout, `"Authorization": "Bearer patchbay_`) {
		t.Errorf("a key as text: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "keys", "list", "--config", file); !strings.Contains(o.stdout, "bob\tbob\tonly tools, prompts; read only\texpires ") ||
		!strings.Contains(o.stdout, "\tnot used") {
		t.Errorf("list as text: %+v", o)
	}
}

// A new key is shown with the URL of the gateway that runs, also if its port is that of --addr.
func TestNewKeyHasTheURLOfTheRunningGateway(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one"))
	g := startGateway(t, nil, "--config", file)
	if o := mustRun(t, "gateway", "keys", "new", "ann", "--all-servers", "--config", file); !strings.Contains(o.stdout, g.url) {
		t.Errorf("got %+v, want %s", o, g.url)
	}
}

// A port alone is no address, and a warning has the address as it was given.
func TestGatewayAddressMistakes(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one"))
	o := patchbay(t, "", "gateway", "--config", file, "--addr", "7793")
	if o.status != exit.Usage || !strings.Contains(o.stderr, `invalid --addr "7793": want host:port, such as 127.0.0.1:7793, or :7793`) {
		t.Errorf("a port alone: %+v", o)
	}
	o = startGateway(t, nil, "--config", file, "--addr", "0.0.0.0:0").stop()
	if !strings.Contains(o.stderr, "other machines reach 0.0.0.0:") {
		t.Errorf("every address: %+v", o)
	}
}
