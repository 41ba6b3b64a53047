package config_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

const credentialServers = `{"mcpServers": {"web": {"url": "https://example.com/mcp"}, "fs": {"command": "fs"},
	"key": {"url": "https://example.com/key", "headers": {"authorization": "Bearer x"}},
	"mine": {"command": "fs", "args": ["${caller:subject}"]}}, "patchbay": `

func TestCredentialsOfServers(t *testing.T) {
	f, err := config.Parse([]byte(credentialServers + `{"connect": {"links": true},
		"servers": {"web": {"auth": "forward", "forwardHeaders": ["x-tenant"], "insecureForwardAuthorization": true,
			"forwardBaggage": true},
			"key": {"auth": "static"}, "fs": {"auth": "none"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Settings()
	if err != nil {
		t.Fatal(err)
	}
	web := s.Servers["web"]
	if web.Auth != config.AuthForward || !slices.Equal(web.ForwardHeaders, []string{"X-Tenant"}) ||
		!web.InsecureForwardAuthorization || !web.ForwardBaggage || s.Servers["key"].ForwardBaggage ||
		s.Servers["key"].Auth != config.AuthStatic || s.Servers["mine"].Auth != "" ||
		s.Connect != (config.Connect{Links: true}) {
		t.Errorf("got %+v, %+v", web, s.Connect)
	}
	f, _ = config.Parse([]byte(credentialServers + `{"servers": {"web": {"auth": "caller", "oauth": {"clientId": "id",
		"clientSecret": "SECRET", "issuer": "https://as.example", "scopes": ["read"]}}}}}`))
	if s, err = f.Settings(); err != nil || s.Servers["web"].OAuth.ClientSecret != "SECRET" ||
		s.Servers["web"].OAuth.Issuer != "https://as.example" {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestInvalidCredentialsAreRefused(t *testing.T) {
	for settings, want := range map[string]string{
		`{"servers": {"web": {"auth": "oauth"}}}`:                                         `line 3, column 94: patchbay.servers.web.auth: `,
		`{"servers": {"web": {"auth": "caller",` + "\n" + `"share": "shared"}}}`:          `line 4, column 1: patchbay.servers.web.share: got "shared" with "auth": "caller"`,
		`{"servers": {"web": {"auth": "forward", "share": "shared"}}}`:                    `web.share: got "shared" with "auth": "forward"`,
		`{"servers": {"web": {"auth": "forward"}}}`:                                       `without forwardHeaders`,
		`{"servers": {"web": {"forwardHeaders": ["X-A"]}}}`:                               `is for "auth": "forward"`,
		`{"servers": {"web": {"auth": "caller", "insecureForwardAuthorization": true}}}`:  `is for "auth": "forward"`,
		`{"servers": {"web": {"auth": "forward", "forwardHeaders": ["authorization"]}}}`:  `set "insecureForwardAuthorization"`,
		`{"servers": {"web": {"auth": "forward", "forwardHeaders": ["Cookie"]}}}`:         `forwardHeaders[0]: got "Cookie"`,
		`{"servers": {"web": {"auth": "forward", "forwardHeaders": ["mcp-session-id"]}}}`: `got "mcp-session-id"`,
		`{"servers": {"web": {"auth": "forward", "forwardHeaders": ["Host"]}}}`:           `got "Host"`,
		`{"servers": {"web": {"auth": "forward", "forwardHeaders": ["X A"]}}}`:            `want the name of a header`,
		`{"servers": {"fs": {"auth": "caller"}}}`:                                         `the server is a command`,
		`{"servers": {"fs": {"auth": "gateway"}}}`:                                        `the server is a command`,
		`{"servers": {"key": {"auth": "caller"}}}`:                                        `the server has a header Authorization`,
		`{"servers": {"key": {"auth": "none"}}}`:                                          `the server has a header Authorization`,
		`{"servers": {"mine": {"share": "shared"}}}`:                                      `the server has ${caller:subject}`,
		`{"servers": {"web": {"oauth": {"scopes": ["a"]}}}}`:                              `is for "auth": "caller" or "gateway"`,
		`{"servers": {"web": {"auth": "caller", "oauth": {"clientId": "a"}}}}`:            `clientId without issuer`,
		`{"servers": {"web": {"auth": "caller", "oauth": {"clientSecret": "a"}}}}`:        `clientSecret without clientId`,
		`{"servers": {"web": {"auth": "caller", "oauth": {"secret": "a"}}}}`:              `unknown member "secret"`,
	} {
		f, err := config.Parse([]byte(credentialServers + settings + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Settings(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", settings, err, want)
		}
	}
}

func TestSubjectOfTheCaller(t *testing.T) {
	expand := func(entry, subject string) (*config.Server, error) {
		f, err := config.Parse([]byte(`{"mcpServers": {"s": ` + entry + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Server("s")
		if err != nil {
			t.Fatal(err)
		}
		return s.Expand(t.Context(), func(name string) (string, bool) {
			if name == "caller:subject" {
				return subject, subject != ""
			}
			return os.LookupEnv(name)
		})
	}
	const entry = `{"command": "x", "args": ["--user=${caller:subject}"], "env": {"U": "${caller:subject}"}}`
	for _, subject := range []string{"ann", "auth0|5f7c", "ann@example.com", "a.b-c_d+e~f:g=h,1"} {
		s, err := expand(entry, subject)
		if err != nil || s.Args[0] != "--user="+subject || s.Env["U"] != subject {
			t.Errorf("%q: got %+v, %v", subject, s, err)
		}
	}
	for _, subject := range []string{"a\nb", "a\x00b", "a/b", `a\b`, "..", ".", "-rf", "a b", "$(id)", "`id`", "a;b", "é",
		"a\u202eb", "a'b", `a"b`, "a\rb", "${HOME}", strings.Repeat("a", 256)} {
		if s, err := expand(entry, subject); err == nil || strings.Contains(err.Error(), subject) && subject != "." {
			t.Errorf("%q: got %+v, %v, want an error without it", subject, s, err)
		}
	}
	if _, err := expand(entry, ""); err == nil || !strings.Contains(err.Error(), "the caller is the local user") {
		t.Errorf("the local user: %v", err)
	}
	if s, err := expand(`{"command": "x", "args": ["${caller:subject:-local}"]}`, ""); err != nil || s.Args[0] != "local" {
		t.Errorf("a default: %+v, %v", s, err)
	}
	if s, err := expand(`{"url": "https://h", "headers": {"X-User": "${caller:subject}"}}`, "ann"); err != nil ||
		s.Header["X-User"] != "ann" {
		t.Errorf("a header: %+v, %v", s, err)
	}
	for _, entry := range []string{`{"command": "${caller:subject}"}`, `{"command": "x", "cwd": "${caller:subject}"}`,
		`{"command": "x", "envFile": "${caller:subject}"}`, `{"url": "https://h/${caller:subject}"}`,
		`{"command": "x", "args": ["${caller:issuer}"]}`} {
		if s, err := expand(entry, "ann"); err == nil {
			t.Errorf("%s: got %+v, want an error", entry, s)
		}
	}
}
