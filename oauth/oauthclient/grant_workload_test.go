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

// workloadJWT returns a JWT of a platform with an audience. Its signature is not verified.
func workloadJWT(audience any) string {
	claims, _ := json.Marshal(map[string]any{"sub": "workload", "aud": audience})
	return "eyJhbGciOiJFUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

// A workload JWT is sent only to the authorization server that is its audience.
func TestWorkloadAssertionAudience(t *testing.T) {
	const honest = "https://honest.example"
	for name, c := range map[string]struct {
		jwt   func(issuer string) string
		pin   func(issuer string) string
		shown bool
	}{
		"audience":             {func(as string) string { return workloadJWT(as) }, nil, true},
		"one of two audiences": {func(as string) string { return workloadJWT([]string{honest, as}) }, nil, true},
		"another audience":     {func(string) string { return workloadJWT(honest) }, nil, false},
		"other audiences":      {func(string) string { return workloadJWT([]string{honest, "api://x"}) }, nil, false},
		"its token endpoint":   {func(as string) string { return workloadJWT(as + "/token?tenant=1") }, nil, false},
		"trailing slash":       {func(as string) string { return workloadJWT(as + "/") }, nil, false},
		"a number":             {func(string) string { return workloadJWT(1) }, nil, false},
		"no audience":          {func(string) string { return "e30.e30.c2ln" }, nil, false},
		"opaque":               {func(string) string { return "platform-token" }, nil, false},
		"only dots":            {func(string) string { return strings.Repeat(".", maxTokenSize) }, nil, false},
		"encrypted":            {func(as string) string { return workloadJWT(as) + ".x.y" }, nil, false},
		"pinned there":         {func(string) string { return workloadJWT("api://exchange") }, func(as string) string { return as }, true},
		"pinned to another":    {func(as string) string { return workloadJWT(as) }, func(string) string { return honest }, false},
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
				t.Errorf("got assertion sent %t, error %v; want sent %t", shown, err, c.shown)
			}
			if err != nil && strings.Contains(err.Error(), c.jwt(w.as.URL)) {
				t.Errorf("the error contains the JWT: %v", err)
			}
			var wrong *IssuerError
			if isPinned := c.pin != nil && !c.shown; errors.As(err, &wrong) != isPinned {
				t.Errorf("got error %v, want IssuerError %t", err, c.pin != nil && !c.shown)
			}
		})
	}
}

// The audiences of a text are those that encoding/json reads from the claims of a JWT.
func FuzzWorkloadAudience(f *testing.F) {
	for _, text := range []string{"", "..", workloadJWT("a"), workloadJWT([]any{"a", 1, "b"}), "e30.eyJhdWQiOiJhIiwiYXVkIjoiYiJ9.x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range audienceOf(text) {
			parts := strings.Split(text, ".")
			if len(parts) != 3 {
				t.Fatalf("got the audience %q of a text with %d parts", one, len(parts))
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
