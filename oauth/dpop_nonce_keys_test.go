package oauth_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// TestNonceKeysAreReplacedWhileServing counts the calls that are refused for their nonce.
func TestNonceKeysAreReplacedWhileServing(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	keys := new(oauth.NonceKeys)
	s := newDPoPServer(t, &oauth.ProofOptions{Required: true, Nonces: true, NonceKeys: keys})
	base, refused := &http.Transport{}, 0
	defer base.CloseIdleConnections()
	c, err := s.connect(july2026, roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := base.RoundTrip(req)
		if err == nil && res.StatusCode == http.StatusUnauthorized {
			refused++
		}
		return res, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, step := range []struct {
		what string
		keys [][]byte
		ok   bool
		want int // refused calls
	}{
		{"the first key", [][]byte{key('1')}, true, 1},
		{"a new key before it", [][]byte{key('2'), key('1')}, true, 0},
		{"the new key alone", [][]byte{key('2')}, true, 0},
		{"no keys", nil, false, 0},
		{"a short key", [][]byte{key('3'), []byte("short")}, false, 0},
		{"another key alone", [][]byte{key('3')}, true, 1},
	} {
		if err := keys.Replace(step.keys); (err == nil) != step.ok {
			t.Errorf("%s: got error %v, want success: %t", step.what, err, step.ok)
		}
		refused = 0
		if _, err := c.CallTool(t.Context(), "who", nil); err != nil || refused != step.want {
			t.Errorf("%s: got error %v after %d refusals, want %d refusals", step.what, err, refused, step.want)
		}
	}
}
