package oauthclient

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// workloadJWT returns what a platform says of a workload. Nobody here verifies it.
func workloadJWT(audience any) string {
	claims, _ := json.Marshal(map[string]any{"sub": "workload", "aud": audience})
	return "eyJhbGciOiJFUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

// TestWorkloadAssertionAudience has an MCP server that names an authorization server for which
// the JWT is, or is not.
func TestWorkloadAssertionAudience(t *testing.T) {
	const honest = "https://honest.example"
	for name, c := range map[string]struct {
		jwt   func(issuer string) string
		pin   func(issuer string) string
		shown bool
	}{
		"for it":                {func(as string) string { return workloadJWT(as) }, nil, true},
		"for it among others":   {func(as string) string { return workloadJWT([]string{honest, as}) }, nil, true},
		"for another":           {func(string) string { return workloadJWT(honest) }, nil, false},
		"for others":            {func(string) string { return workloadJWT([]string{honest, "api://x"}) }, nil, false},
		"for its token address": {func(as string) string { return workloadJWT(as + "/token?tenant=1") }, nil, false},
		"with a slash":          {func(as string) string { return workloadJWT(as + "/") }, nil, false},
		"for a number":          {func(string) string { return workloadJWT(1) }, nil, false},
		"for nobody":            {func(string) string { return "e30.e30.c2ln" }, nil, false},
		"opaque":                {func(string) string { return "platform-token" }, nil, false},
		"only dots":             {func(string) string { return strings.Repeat(".", maxTokenSize) }, nil, false},
		"encrypted":             {func(as string) string { return workloadJWT(as) + ".x.y" }, nil, false},
		"pinned there":          {func(string) string { return workloadJWT("api://exchange") }, func(as string) string { return as }, true},
		"pinned to another":     {func(as string) string { return workloadJWT(as) }, func(string) string { return honest }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrantEnv(t)
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(c.jwt(w.as.URL)), 0o600); err != nil {
				t.Fatal(err)
			}
			opts := &TransportOptions{Grant: NewWorkloadGrant(AssertionFile(file))}
			if c.pin != nil {
				opts.Client.Issuer = c.pin(w.as.URL)
			}
			err := w.try(opts)
			if shown := len(w.tokenRequests) > 0; shown != c.shown || (err == nil) != c.shown {
				t.Errorf("it was shown: %v, %v; want %v", shown, err, c.shown)
			}
			if err != nil && strings.Contains(err.Error(), c.jwt(w.as.URL)) {
				t.Errorf("the error repeats the JWT: %v", err)
			}
			var wrong *IssuerError
			if isPinned := c.pin != nil && !c.shown; errors.As(err, &wrong) != isPinned {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzWorkloadAudience takes no text for a JWT whose claims could not be read from it.
func FuzzWorkloadAudience(f *testing.F) {
	for _, text := range []string{"", "..", workloadJWT("a"), workloadJWT([]any{"a", 1, "b"}), "e30.eyJhdWQiOiJhIiwiYXVkIjoiYiJ9.x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range audienceOf(text) {
			parts := strings.Split(text, ".")
			if len(parts) != 3 {
				t.Fatalf("%d parts name %q", len(parts), one)
			}
			claims, err := base64.RawURLEncoding.DecodeString(parts[1])
			if err != nil {
				t.Fatal(err)
			}
			var all map[string]any
			if err := json.Unmarshal(claims, &all); err != nil {
				t.Fatal(err)
			}
			several, _ := all["aud"].([]any)
			found := all["aud"] == one
			for _, a := range several {
				found = found || a == one
			}
			if !found {
				t.Fatalf("%q is not in %s", one, claims)
			}
		}
	})
}
