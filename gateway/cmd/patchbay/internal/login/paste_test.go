package login

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

var pastedLogin = &oauthclient.LoginRequest{URL: "https://as.example/authorize?state=s3", State: "s3",
	Issuer: "https://as.example"}

const pastedURI = "http://127.0.0.1:7/callback"

func TestPastedURLIsChecked(t *testing.T) {
	for line, want := range map[string]string{
		pastedURI + "?state=s3&code=c":                                           "",
		" " + pastedURI + "?state=s3&code=c&iss=https%3A%2F%2Fas.example#_=_ \r": "",
		pastedURI + "?state=s3&error=access_denied":                              "",
		"":        "must begin with",
		"c":       "must begin with",
		pastedURI: "must begin with",
		"https://as.example/authorize?state=s3&code=c":                "this is the login page",
		"http://127.0.0.1:8/callback?state=s3&code=c":                 "must begin with",
		"http://127.0.0.1:7/callback/x?state=s3&code=c":               "must begin with",
		"http://localhost:7/callback?state=s3&code=c":                 "must begin with",
		"http://127.0.0.1:7@evil.example/callback?state=s3":           "must begin with",
		pastedURI + "?code=c":                                         "its state",
		pastedURI + "?state=S3&code=c":                                "its state",
		pastedURI + "?state=s3&state=s3&code=c":                       "state appears twice",
		pastedURI + "?state=s3&code=c&code=d":                         "code appears twice",
		pastedURI + "?state=s3&code=c&iss=https://evil.example":       "its iss",
		pastedURI + "?state=s3&code=c&iss=":                           "its iss",
		pastedURI + "?state=s3":                                       "neither a code nor an error",
		pastedURI + "?state=s3&code=%zz":                              "cannot be parsed",
		pastedURI + "?state=s3&code=" + strings.Repeat("c", maxPaste): "at most",
	} {
		values, err := parsePaste(line, pastedURI, pastedLogin)
		if (err == nil) != (want == "") || (values != nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q: got %v, %v, want %q", line, values, err, want)
		}
	}
}

func FuzzPastedURL(f *testing.F) {
	f.Add(pastedURI + "?state=s3&code=c&iss=https%3A%2F%2Fas.example#x")
	f.Add("https://as.example/authorize?state=s3&code=c")
	f.Fuzz(func(t *testing.T, line string) {
		values, err := parsePaste(line, pastedURI, pastedLogin)
		if (values == nil) == (err == nil) || err == nil && (values.Get("state") != "s3" || len(line) > 2*maxPaste) {
			t.Errorf("got %v, %v", values, err)
		}
	})
}
