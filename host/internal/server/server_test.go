package server_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
)

// open returns a server of a configuration with two accounts of a program, and a web server.
func open(t *testing.T, name, settings string, old *server.Server) *server.Server {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {
		"work": {"command": "mail", "env": {"TOKEN": "${TOKEN:-first}"}},
		"home": {"command": "mail", "env": {"TOKEN": "second"}},
		"web": {"url": "https://example.com/mcp", "headers": {"authorization": "Bearer x"}}},
		"patchbay": {"servers": {"work": ` + settings + `}}}`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := f.Settings()
	if err != nil {
		t.Fatal(err)
	}
	return server.New(f, set, name, old)
}

func TestAccountsOfOneProgramHaveDifferentIdentities(t *testing.T) {
	work, home := open(t, "work", `{}`, nil), open(t, "home", `{}`, nil)
	seen := map[string]bool{}
	first, second := work.Identity(seen), home.Identity(seen)
	if first == "" || first == second {
		t.Errorf("identities %q and %q, want two", first, second)
	}
	if alone := home.Identity(map[string]bool{}); alone != first {
		t.Errorf("identity %q without the other account, want %q: variables are not part of it", alone, first)
	}
}

func TestFingerprintCoversValuesAndSettingsOfConnections(t *testing.T) {
	key := server.NewFingerprintKey()
	fingerprint := func(settings, pins, token string) server.Fingerprint {
		return open(t, "work", settings, nil).Fingerprint(key, func(name string) (string, bool) {
			if name == "TOKEN" && token != "" {
				return token, true
			}
			return os.LookupEnv(name)
		}, pins)
	}
	before := fingerprint(`{}`, "", "a")
	for _, c := range []struct {
		name, settings, pins, token string
		same                        bool
	}{
		{"nothing", `{}`, "", "a", true},
		{"a list of tools", `{"allow": ["*"]}`, "", "a", true},
		{"a variable", `{}`, "", "b", false},
		{"the timeout", `{"timeout": "3s"}`, "", "a", false},
		{"a sandbox", `{"sandbox": {}}`, "", "a", false},
		{"the treatment of definitions", `{}`, "p", "a", false},
	} {
		if same := fingerprint(c.settings, c.pins, c.token) == before; same != c.same {
			t.Errorf("%s differs: same fingerprint %t, want %t", c.name, same, c.same)
		}
	}
}

func TestEqualOptionsAreShared(t *testing.T) {
	old := open(t, "work", `{"allow": ["a"]}`, nil)
	if s := open(t, "work", `{"allow": ["a"], "timeout": "3s"}`, old); s.Options != old.Options {
		t.Error("equal options are not shared")
	}
	if s := open(t, "work", `{"allow": ["b"]}`, old); s.Options == old.Options {
		t.Error("other options are those of the predecessor")
	}
}

func TestAuthorizationHeaderIsFoundInAnyCase(t *testing.T) {
	web, work := open(t, "web", `{}`, nil), open(t, "work", `{}`, nil)
	if !web.HasAuthorization() || work.HasAuthorization() || web.IsCommand() || !work.IsCommand() {
		t.Error("web: want a header and no command; work: want a command without a header")
	}
}

// Gateways that share a server compare its digest: a looser sandbox at one of them is a difference.
func TestDigestCoversTheSandbox(t *testing.T) {
	seen := map[string]string{}
	for _, settings := range []string{`{}`, `{"sandbox": {}}`, `{"sandbox": {"network": "host"}}`,
		`{"sandbox": {"read": ["/srv/a"]}}`, `{"sandbox": {"write": ["/srv/a"]}}`, `{"sandbox": {"read": ["/srv/a b"]}}`,
		`{"sandbox": {"read": ["/srv/a", "/b"]}}`, `{"sandbox": {"processes": 5}}`, `{"sandbox": {"openFiles": 50}}`} {
		digest := open(t, "work", settings, nil).Digest()
		if other, ok := seen[digest]; ok {
			t.Errorf("%s and %s: same digest", settings, other)
		}
		seen[digest] = settings
	}
}
