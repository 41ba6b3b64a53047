package oauth

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// maxForm is how much of a form is searched for a token, in bytes; where it is longer, the rest is not.
const maxForm = 64 << 10

// credentials are what a request shows.
type credentials struct {
	scheme string // one of oauthwire.Bearer and oauthwire.DPoP
	token  string
}

// readCredentials reads the token of a request. A token may stand in the header alone: others get into logs, histories
// and caches, and who sends one there has to learn that it does not work.
//
// Spec: RFC 6750, sections 2 and 3.1; basic/authorization, Access Token Usage.
func readCredentials(r *http.Request) (credentials, *denial) {
	c := credentials{scheme: oauthwire.Bearer}
	if r.URL.RawQuery != "" && r.URL.Query().Has("access_token") {
		return c, badRequest("an access token must not stand in the query")
	}
	if formContainsToken(r) {
		return c, badRequest("an access token must not stand in the body")
	}
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return c, errNoToken
	}
	if len(values) > 1 {
		return c, badRequest("the Authorization header is given twice")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	switch {
	case strings.EqualFold(scheme, oauthwire.Bearer):
	case strings.EqualFold(scheme, oauthwire.DPoP):
		c.scheme = oauthwire.DPoP
	default:
		return c, errNoToken
	}
	c.token = strings.TrimLeft(token, " ")
	if len(c.token) > maxToken {
		return c, badRequest("the access token is too long")
	}
	if !oauthwire.IsToken68(c.token) {
		return c, badRequest("the Authorization header is malformed")
	}
	return c, nil
}

// formContainsToken reports whether the body of a request is a form with a token in it. The body can be read again.
func formContainsToken(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.Body == nil {
		return false
	}
	start, _ := io.ReadAll(io.LimitReader(r.Body, maxForm)) // who reads on meets the error
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), r.Body), r.Body}
	form, _ := url.ParseQuery(string(start))
	return form.Has("access_token")
}
