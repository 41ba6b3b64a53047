package oauth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// unclean returns variants of a token with a character that no token has.
func unclean(token string) map[string]string {
	all := map[string]string{"empty": ""}
	for name, c := range map[string]string{
		"space": " ", "tab": "\t", "newline": "\n", "carriage return": "\r", "NUL": "\x00", "DEL": "\x7f",
		"no-break space": "\u00a0", "letter outside ASCII": "\u00e9", "byte outside ASCII": "\xff",
	} {
		all[name+" before"] = c + token
		all[name+" within"] = token[:len(token)/2] + c + token[len(token)/2:]
		all[name+" after"] = token + c
	}
	return all
}

// Requirement: AUTH-07
func TestVerifyRefusesWhiteSpaceAndControlCharacters(t *testing.T) {
	check := func(t *testing.T, v oauth.Verifier, token string) {
		t.Helper()
		wantVerified(t, v, token)
		for name, text := range unclean(token) {
			_, err := v.Verify(t.Context(), text)
			if !errors.Is(err, oauth.ErrInvalidToken) {
				t.Errorf("%s: got error %v, want ErrInvalidToken", name, err)
			}
			if err != nil && text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error contains the token: %v", name, err)
			}
		}
	}
	t.Run("JWT", func(t *testing.T) {
		token := issue(t)
		check(t, testVerifier(t), token)
		parts := strings.Split(token, ".")
		signature := parts[2][:10] + "\n" + parts[2][10:] // base64 decoders skip newlines
		wantRefused(t, testVerifier(t), parts[0]+"."+parts[1]+"."+signature)
	})
	t.Run("static", func(t *testing.T) {
		const token = "a-token-of-a-sufficient-length-for-tests"
		v, err := oauth.NewStaticVerifier(oauth.StaticToken{Token: token, Subject: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		check(t, v, token)
		spaced := token + "\n" // as from a file whose last line break was hashed, too
		digest := sha256.Sum256([]byte(spaced))
		if v, err = oauth.NewStaticVerifier(oauth.StaticToken{SHA256: hex.EncodeToString(digest[:]), Subject: "ann"}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, spaced)
	})
	t.Run("introspection", func(t *testing.T) {
		active := func() string { return mustJSON(goodClaims(claims{"active": true})) }
		withIntrospection(t, oauth.IntrospectionOptions{CacheTime: -1}, active,
			func(t *testing.T, v *oauth.IntrospectionVerifier, asked *atomic.Int32, _ *http.Request) {
				check(t, v, "an-opaque-token")
				if asked.Load() != 1 {
					t.Errorf("got %d introspection requests, want 1", asked.Load())
				}
			})
	})
}
