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

// maxForm bounds how much of a form is searched for a token, in bytes.
const maxForm = 64 << 10

// credentials are the token of a request and its scheme.
type credentials struct {
	scheme string // oauthwire.Bearer or oauthwire.DPoP
	token  string
}

// readCredentials reads the token of a request. It is only allowed in the header: elsewhere it
// would get into logs, histories and caches, so a token in the query or the body is refused instead
// of ignored.
//
// Spec: RFC 6750, sections 2 and 3.1; basic/authorization, Access Token Usage.
func readCredentials(r *http.Request) (credentials, *denial) {
	c := credentials{scheme: oauthwire.Bearer}
	if r.URL.RawQuery != "" && r.URL.Query().Has("access_token") {
		return c, badRequest("the access token must be in the Authorization header, not in the query")
	}
	if formContainsToken(r) {
		return c, badRequest("the access token must be in the Authorization header, not in the body")
	}
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return c, errNoToken
	}
	if len(values) > 1 {
		return c, badRequest("there must be only one Authorization header")
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

// formContainsToken reports whether the body of a request is a form with an access_token. The body
// can be read again.
func formContainsToken(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.Body == nil {
		return false
	}
	start, _ := io.ReadAll(io.LimitReader(r.Body, maxForm)) // the next reader gets the error
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), r.Body), r.Body}
	form, _ := url.ParseQuery(string(start))
	return form.Has("access_token")
}
