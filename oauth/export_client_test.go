package oauth

import (
	"net/url"
	"time"
)

// What the tests of the client reach within.

// ReadTokenResponse returns the tokens and the life of what a token endpoint says.
func ReadTokenResponse(status int, body []byte) (access, refresh string, life time.Duration, err error) {
	r, err := readTokenResponse(status, body, nil)
	if err != nil {
		return "", "", 0, err
	}
	return r.AccessToken, r.RefreshToken, r.life(), nil
}

// IsHostOf reports whether a Host header is that of a redirect URI.
func IsHostOf(u *url.URL, host string) bool { return isHostOf(u, host) }

// TakeAnswer returns the code of an answer to a login at an issuer.
func TakeAnswer(issuer string, sendsIssuer bool, state string, answer url.Values) (string, error) {
	server := &ServerMetadata{Issuer: issuer, SendsIssuer: sendsIssuer}
	l := &login{grantRequest: &grantRequest{discovery: &discovery{Issuer: issuer, Server: server}}, state: state}
	return l.take(answer)
}
