package oauthclient_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// An accepted token response has the values that encoding/json reads, tokens that are valid in a
// header, and a lifetime of at most a year.
func FuzzTokenResponse(f *testing.F) {
	for _, body := range []string{
		`{"access_token":"a","token_type":"Bearer","expires_in":60,"refresh_token":"b","scope":"c d"}`,
		`{"access_token":"a\u000d\u000ab"}`, `{"access_token":"a","Access_token":"b"}`, `{"access_token":"a","expires_in":"1e999"}`,
		`{"error":"invalid_grant","error_description":"x"}`, `[]`, `{"access_token":"a","access_token":"b"}`,
	} {
		f.Add(200, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		access, refresh, lifetime, err := oauthclient.ReadTokenResponse(status, body)
		if err != nil {
			if text := err.Error(); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("got error %q, want no control characters", text)
			}
			return
		}
		var plain map[string]json.RawMessage
		var a, r string
		if err := json.Unmarshal(body, &plain); err != nil || status != 200 {
			t.Fatalf("%q was accepted with status %d: %v", body, status, err)
		}
		_ = json.Unmarshal(plain["access_token"], &a)
		_ = json.Unmarshal(plain["refresh_token"], &r)
		if a != access || r != refresh || access == "" || lifetime < 0 || lifetime > 365*24*time.Hour {
			t.Errorf("%q was read as %q, %q for %v", body, access, refresh, lifetime)
		}
		for _, c := range []byte(access + refresh) {
			if c <= ' ' || c > '~' {
				t.Errorf("got tokens %q, want printable ASCII without spaces", access+refresh)
			}
		}
	})
}

// A code is accepted only with the state and the issuer of the login. Error text of other responses is
// not repeated.
func FuzzAuthorizationResponse(f *testing.F) {
	const state, issuer = "the-state-of-the-login", "https://as.example"
	for _, query := range []string{
		"code=c&state=" + state, "code=c&state=" + state + "&iss=https%3A%2F%2Fas.example", "error=e&state=" + state,
		"code=c&state=" + state + "&iss=https%3A%2F%2Fas.example%2F", "code=c&code=d&state=" + state, "code=c", "code=c&state=" + state + "&iss=",
	} {
		f.Add(query, true)
		f.Add(query, false)
	}
	f.Fuzz(func(t *testing.T, query string, sends bool) {
		answer, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		code, err := oauthclient.TakeAnswer(issuer, sends, state, answer)
		theirs := answer.Has("iss") && (len(answer["iss"]) != 1 || answer["iss"][0] != issuer) || !answer.Has("iss") && sends
		refused, isLoginError := errors.AsType[*oauthclient.LoginError](err)
		switch {
		case err == nil && (theirs || len(answer["state"]) != 1 || answer["state"][0] != state || answer.Get("error") != "" ||
			len(answer["code"]) != 1 || code == "" || code != answer["code"][0]):
			t.Errorf("%q was accepted with the code %q", query, code)
		case isLoginError && (theirs || answer.Get("state") != state):
			t.Errorf("%q: got the server's error %v, want none of its text", query, refused)
		}
	})
}
