package root

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// auditedServer writes a configuration with a demo server, whose environment has a secret, and a log.
func auditedServer(t *testing.T, settings string) (file, dir string) {
	t.Helper()
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	base := t.TempDir()
	file, dir = filepath.Join(base, "servers.json"), filepath.Join(base, "log")
	entry := strings.Replace(demoEntry(t), `"env":{`, `"env":{"DEMO_TOKEN":"tok-5ecret-value",`, 1)
	writeFile(t, file, `{"mcpServers": {"one": `+entry+`, "two": `+demoEntry(t)+`},
		"patchbay": {"audit": {"dir": "log"`+settings+`}}}`)
	return file, dir
}

// audited runs a command about the log, which must succeed.
func audited(t *testing.T, file string, args ...string) string {
	t.Helper()
	o := patchbay(t, "", append([]string{"gateway", "audit", "--config", file}, args...)...)
	if o.status != exit.OK {
		t.Fatalf("audit %q: exit code %d, %s%s", args, o.status, o.stdout, o.stderr)
	}
	return o.stdout
}

func TestAuditOfTheHost(t *testing.T) {
	file, dir := auditedServer(t, `, "args": "full", "strict": true`)
	if o := patchbay(t, "", "call", "@host", "--config", file, "one__add", "a=20", "b=22"); o.status != exit.OK {
		t.Fatalf("call: %+v", o)
	}
	o := patchbay(t, "", "call", "@host", "--config", file, "one__greet", "name=tok-5ecret-value")
	if o.status != exit.OK {
		t.Fatalf("call with a secret: %+v", o)
	}
	out := audited(t, file, "query", "--server", "one", "--tool", "add", "--outcome", "ok", "--json")
	var e struct{ Event, ID, Outcome, Caller, Public string }
	if err := json.Unmarshal([]byte(out), &e); err != nil || strings.Count(out, "\n") != 1 || e.Event != "end" ||
		e.Caller != "local" || e.Public != "one__add" {
		t.Fatalf("query: %s, %v, want the end of the call", out, err)
	}
	lines := strings.Split(atTerminal(t, "", nil, "gateway", "audit", "query", "--config", file, "--server", "one").stdout, "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "TIME ") || strings.Contains(lines[1], "TIME") ||
		strings.Index(lines[0], "SERVER") != strings.Index(lines[1], "one") {
		t.Errorf("query on a terminal: %q, want one header above its columns", lines)
	}
	var shown struct{ Records []struct{ Event string } }
	if out = audited(t, file, "show", e.ID, "--json"); json.Unmarshal([]byte(out), &shown) != nil ||
		len(shown.Records) != 2 || shown.Records[0].Event != "intent" || shown.Records[1].Event != "end" {
		t.Errorf("show: %s, want the intent and the end", out)
	}
	if out = audited(t, file, "tail", "-n", "1000"); !regexp.MustCompile(`end ok  local  one  add`).MatchString(out) {
		t.Errorf("tail: %s, want the call", out)
	}
	if out = audited(t, file, "replay", e.ID); !strings.Contains(out, `"arguments":{"a":20,"b":22}`) {
		t.Errorf("replay: %s, want the arguments", out)
	}
	if out = audited(t, file, "replay", e.ID, "--send"); out != "42\n" {
		t.Errorf("replay --send: %q, want 42", out)
	}
	if out = audited(t, file, "query", "--tool", "add", "--outcome", "end"); strings.Count(out, "\n") != 2 {
		t.Errorf("query: %s, want the call and its replay", out)
	}
	if out = audited(t, file, "verify"); !strings.Contains(out, ": ok: ") {
		t.Errorf("verify: %s", out)
	}
	checkNoSecret(t, dir)
	checkTampered(t, file, dir)
}

// checkNoSecret checks that no file of a log has the secret of the server.
func checkNoSecret(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%q, %v, want segments", all, err)
	}
	masked := false
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil || bytes.Contains(text, []byte("5ecret")) {
			t.Errorf("%s has the secret of the server, or %v", path, err)
		}
		masked = masked || bytes.Contains(text, []byte("[secret]"))
	}
	if !masked {
		t.Error("the secret was not in a record: the test shows nothing")
	}
}

func checkTampered(t *testing.T, file, dir string) {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	text, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, all[0], strings.Replace(string(text), `"a":20`, `"a":21`, 1))
	o := patchbay(t, "", "gateway", "audit", "verify", "--config", file, "--json")
	if o.status != exit.Failure || !strings.Contains(o.stdout, `"kind":"altered"`) {
		t.Errorf("verify of an altered log: %+v, want the record", o)
	}
	lines := strings.SplitAfter(string(text), "\n")
	writeFile(t, all[0], strings.Join(lines[:len(lines)-4], ""))
	o = patchbay(t, "", "gateway", "audit", "verify", "--config", file)
	if o.status != exit.Failure || !strings.Contains(o.stderr, "cut") {
		t.Errorf("verify of a log without its end: %+v, want the first missing record", o)
	}
	for _, path := range all {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	o = patchbay(t, "", "gateway", "audit", "verify", "--config", file)
	if o.status != exit.Failure || !strings.Contains(o.stderr, "all segments of the chain are missing") {
		t.Errorf("verify of a log without its files: %+v, want the chain", o)
	}
}

func TestReplayNeedsFullArguments(t *testing.T) {
	file, _ := auditedServer(t, "")
	if o := patchbay(t, "", "call", "@host", "--config", file, "one__add", "a=20", "b=22"); o.status != exit.OK {
		t.Fatalf("call: %+v", o)
	}
	out := audited(t, file, "query", "--tool", "add", "--json")
	var e struct{ ID string }
	const shape = `"shape":{"a":"number","b":"number"}`
	if err := json.Unmarshal([]byte(out), &e); err != nil || !strings.Contains(out, shape) {
		t.Fatalf("query: %s, %v, want the shape of the arguments", out, err)
	}
	o := patchbay(t, "", "gateway", "audit", "replay", e.ID, "--config", file)
	if o.status != exit.Failure || !strings.Contains(o.stderr, `audit.args must be "full"`) {
		t.Errorf("replay: %+v, want the setting that is missing", o)
	}
	if o = patchbay(t, "", "gateway", "audit", "show", "none", "--config", file); o.status != exit.NotFound {
		t.Errorf("show of an unknown id: %+v, want exit code %d", o, exit.NotFound)
	}
	if o = patchbay(t, "", "gateway", "audit", "query", "--since", "soon", "--config", file); o.status != exit.Usage {
		t.Errorf("query with an invalid time: %+v, want exit code %d", o, exit.Usage)
	}
}

func TestAuditWithoutALog(t *testing.T) {
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, `{"mcpServers": {}}`)
	for _, verb := range []string{"tail", "query", "verify"} {
		o := patchbay(t, "", "gateway", "audit", verb, "--config", file)
		if o.status != exit.NotFound || !strings.Contains(o.stderr, `add "audit": {}`) {
			t.Errorf("%s: %+v, want what to add", verb, o)
		}
	}
}

// A query finds callers by their subject, refuses outcomes that no record has, and says if it finds nothing.
func TestAuditQueryOfCallers(t *testing.T) {
	file, dir := auditedServer(t, "")
	l, err := audit.Open(&audit.Options{Dir: dir, HeadDir: t.TempDir(), Key: ed25519.NewKeyFromSeed(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "anna", "ann lee"} {
		caller := &policy.Caller{Principal: &mcp.Principal{Subject: name, Issuer: "patchbay:key"}}
		err := l.Record(&event.Record{Event: event.End, Action: policy.Action{Caller: caller, Server: "one"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for caller, want := range map[string]int{"ann": 1, "anna": 1, "ann lee": 1, "ann*": 3, "ann patchbay:key": 1, "an": 0} {
		o := patchbay(t, "", "gateway", "audit", "query", "--config", file, "--caller", caller)
		if n := strings.Count(o.stdout, "\n"); o.status != exit.OK || n != want || (o.stderr == "No records match.\n") != (n == 0) {
			t.Errorf("--caller %q: %+v, want %d records", caller, o, want)
		}
	}
	o := patchbay(t, "", "gateway", "audit", "query", "--config", file, "--outcome", "bogus")
	if o.status != exit.Usage || !strings.Contains(o.stderr, `unknown outcome "bogus": want one of ok, error, failed`) {
		t.Errorf("--outcome bogus: %+v", o)
	}
}
