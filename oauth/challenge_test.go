package oauth_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/oauth"
)

func challengeHeader(fields ...string) http.Header { return http.Header{"Www-Authenticate": fields} }

type params = map[string]string

// Requirement: AUTHR-04
func TestParseChallenges(t *testing.T) {
	for name, tc := range map[string]struct {
		fields []string
		want   []oauth.Challenge
	}{
		"none": {nil, nil},
		"bearer": {
			[]string{`Bearer resource_metadata="https://a.example/.well-known/x", scope="a b"`},
			[]oauth.Challenge{{Scheme: "Bearer",
				Params: params{"resource_metadata": "https://a.example/.well-known/x", "scope": "a b"}}},
		},
		"scheme alone": {[]string{`Bearer`}, []oauth.Challenge{{Scheme: "Bearer"}}},
		"two in one field": {
			[]string{`Basic realm="a, b=c", Bearer error="x"`},
			[]oauth.Challenge{{Scheme: "Basic", Params: params{"realm": "a, b=c"}},
				{Scheme: "Bearer", Params: params{"error": "x"}}},
		},
		"two without parameters": {[]string{`Negotiate, NTLM`},
			[]oauth.Challenge{{Scheme: "Negotiate"}, {Scheme: "NTLM"}}},
		"two fields": {
			[]string{`DPoP algs="ES256"`, `Bearer a=b`},
			[]oauth.Challenge{{Scheme: "DPoP", Params: params{"algs": "ES256"}},
				{Scheme: "Bearer", Params: params{"a": "b"}}},
		},
		"token68": {
			[]string{`Negotiate YWJj==, Bearer a=b`},
			[]oauth.Challenge{{Scheme: "Negotiate", Token68: "YWJj=="}, {Scheme: "Bearer", Params: params{"a": "b"}}},
		},
		"escapes": {[]string{`Bearer realm="a\"b\\c"`},
			[]oauth.Challenge{{Scheme: "Bearer", Params: params{"realm": `a"b\c`}}}},
		"case and space": {
			[]string{"  , bearer   Scope =  a ,\tERROR=\"b\" , "},
			[]oauth.Challenge{{Scheme: "bearer", Params: params{"scope": "a", "error": "b"}}},
		},
		"URL without quotes": {
			[]string{`Bearer resource_metadata=https://a.example/x?y=z, scope=a`},
			[]oauth.Challenge{{Scheme: "Bearer",
				Params: params{"resource_metadata": "https://a.example/x?y=z", "scope": "a"}}},
		},
		"parameter twice": {[]string{`Bearer scope="a", scope="b", Basic realm="c"`},
			[]oauth.Challenge{{Scheme: "Basic", Params: params{"realm": "c"}}}},
		"unterminated quote": {[]string{`Basic realm="a", Bearer scope="a`, `Bearer b="c"`},
			[]oauth.Challenge{{Scheme: "Basic", Params: params{"realm": "a"}},
				{Scheme: "Bearer", Params: params{"b": "c"}}}},
		"malformed": {[]string{`"Bearer"`, `Bearer @`, `=`, `Bearer a="b"c`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, oauth.ParseChallenges(challengeHeader(tc.fields...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChallengesAreBounded(t *testing.T) {
	if n := len(oauth.ParseChallenges(challengeHeader(strings.Repeat(`Bearer a="b", `, 1000)))); n != 16 {
		t.Errorf("got %d challenges of 1000, want 16", n)
	}
	if n := len(oauth.ParseChallenges(challengeHeader(`Bearer a="` + strings.Repeat("x", 40<<10) + `"`))); n != 0 {
		t.Errorf("header of 40 KiB: got %d challenges, want 0", n)
	}
	var b strings.Builder
	b.WriteString("Bearer ")
	for i := range 40 {
		b.WriteString(strings.Repeat("p", i+1) + "=v, ")
	}
	if n := len(oauth.ParseChallenges(challengeHeader(b.String()))); n != 0 {
		t.Errorf("challenge with 40 parameters: got %d challenges, want 0", n)
	}
}

func TestChallengeCannotInject(t *testing.T) {
	c := oauth.Challenge{Scheme: "Bearer", Params: params{
		"error_description": "a\", evil=\"b\r\nSet-Cookie: c=d\x00\x7f\\",
		"bad name\r\n":      "x",
	}}
	text := c.String()
	if strings.ContainsAny(text, "\r\n\x00\x7f") || strings.Contains(text, "bad name") {
		t.Errorf("got %q, want no control character and no invalid parameter name", text)
	}
	parsed := oauth.ParseChallenges(challengeHeader(text))
	want := []oauth.Challenge{{Scheme: "Bearer",
		Params: params{"error_description": "a\", evil=\"b  Set-Cookie: c=d  \\"}}}
	if !reflect.DeepEqual(parsed, want) {
		t.Errorf("got %q, want %q", parsed, want)
	}
	if text := (oauth.Challenge{Scheme: "Bearer\r\nX: y", Params: params{"a": "b"}}).String(); text != "" {
		t.Errorf("scheme with a line break: got %q, want an empty string", text)
	}
}

// A parsed challenge that is written and parsed again is unchanged, and its text is a valid header
// field.
func FuzzParseChallenges(f *testing.F) {
	for _, seed := range []string{
		`Bearer resource_metadata="https://a.example/x", scope="a b", error=insufficient_scope`,
		`Negotiate YWJj==, Basic realm="x", charset="UTF-8"`, `Bearer a="\"\\", b = c`, `,,Bearer,,a=b`, "DPoP algs=\"ES256\"\tx", `a b=`,
	} {
		f.Add(seed, `Bearer`)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		parsed := oauth.ParseChallenges(challengeHeader(one, two))
		var fields []string
		for _, c := range parsed {
			if !c.Is(strings.ToUpper(c.Scheme)) {
				t.Errorf("Is(%q) = false for a challenge of that scheme", strings.ToUpper(c.Scheme))
			}
			text := c.String()
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) ||
				text == "" {
				t.Errorf("got %q, want a valid header field", text)
			}
			fields = append(fields, text)
		}
		again := oauth.ParseChallenges(challengeHeader(strings.Join(fields, ", ")))
		if len(parsed) > 0 && !reflect.DeepEqual(parsed, again) {
			t.Errorf("%q parses as %q, then %q as %q", []string{one, two}, parsed, fields, again)
		}
	})
}
