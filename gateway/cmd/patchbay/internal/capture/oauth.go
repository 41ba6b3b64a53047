package capture

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// maxLoginBody bounds the recorded part of a body of a login, in bytes: documents with
	// metadata contain a few kilobytes.
	maxLoginBody = 64 << 10
	// minSecret is the length of the shortest value that is replaced wherever it occurs, in bytes:
	// shorter values occur in unrelated text.
	minSecret = 4
)

// WithLogin returns a context for logins of a principal at a server. [Fetches] and [LoginPage]
// record the requests of these logins. p is nil for the local user. If r is nil, nothing is recorded.
func (r *Ring) WithLogin(ctx context.Context, server string, p *mcp.Principal) context.Context {
	if r == nil {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, r.connection(server, callerName(&policy.Caller{Principal: p})))
}

// Fetches returns the function Wrap of [oauth.FetcherOptions] that records requests as exchanges
// of the hop oauth. Fetches returns nil unless ctx comes from [Ring.WithLogin] or from a function
// for [Ring.Dial].
func Fetches(ctx context.Context) func(base http.RoundTripper) http.RoundTripper {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil {
		return nil
	}
	return func(base http.RoundTripper) http.RoundTripper {
		return &httpTransport{connection: c, base: base, login: &loginBodies{}}
	}
}

// LoginPage returns the function Page of [oauthclient.TransportOptions] that records login pages,
// like [Fetches].
func LoginPage(ctx context.Context) func(*oauthclient.LoginRequest) func(url.Values, error) {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil {
		return nil
	}
	return func(r *oauthclient.LoginRequest) func(url.Values, error) {
		address, query, _ := strings.Cut(r.URL, "?")
		id := c.ring.begin(&Exchange{Hop: OAuth, Server: c.server, Caller: c.caller, Method: http.MethodGet,
			Target: target.PublicURL(address), Sent: 1})
		bodies := &loginBodies{}
		c.ring.add(id, Frame{Kind: Body, Sent: true}, bodies.sent([]byte(query)), nil)
		return func(response url.Values, err error) {
			status, text := StatusOK, bodies.sent([]byte(response.Encode()))
			if code := response.Get("error"); err != nil {
				status, text = StatusFailed, bodies.clean([]byte(err.Error()))
			} else if code != "" {
				status = "error " + bounded(string(bodies.clean([]byte(code))), maxText)
			}
			c.ring.add(id, Frame{Kind: Body}, text, nil)
			c.ring.end(id, status)
		}
	}
}

// publicMembers are the members and parameters of logins whose values are shown. Any other value
// may be secret, such as codes, verifiers, states, tokens and client secrets.
var publicMembers = []string{"application_type", "audience", "client_assertion_type", "client_id",
	"client_id_issued_at", "client_name", "client_secret_expires_at", "client_uri", "code_challenge_method", "error",
	"error_description", "error_uri", "expires_in", "grant_type", "grant_types", "iss", "issued_token_type",
	"jwks_uri", "prompt", "redirect_uri", "redirect_uris", "requested_token_type", "resource", "response_type",
	"response_types", "scope", "software_id", "software_version", "subject_token_type", "token_endpoint_auth_method",
	"token_type", "token_type_hint"}

// loginBodies makes the bodies of a request of a login public. It holds the secrets of the
// request, which an error in the response may repeat.
type loginBodies struct{ secrets []string }

// authorized adds the credentials of the header Authorization to the secrets, also URL-decoded.
func (b *loginBodies) authorized(req *http.Request) {
	_, credentials, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	_, secret, _ := req.BasicAuth()
	b.secrets = append(b.secrets, credentials, secret)
	if decoded, err := url.QueryUnescape(secret); err == nil {
		b.secrets = append(b.secrets, decoded)
	}
}

// sent returns the public text of parameters or of a JSON object that this program sends or a browser returns.
func (b *loginBodies) sent(body []byte) []byte {
	if rawjson.Kind(body) == '{' {
		return b.object(body)
	}
	values, err := url.ParseQuery(string(body))
	if err != nil || len(values) == 0 {
		return nil
	}
	object := []byte{'{'}
	for name := range values {
		object = append(rawjson.AppendQuote(object, name), ':')
		object = append(rawjson.AppendQuote(object, strings.Join(values[name], " ")), ',')
	}
	return b.object(append(object[:len(object)-1], '}'))
}

// object returns an object with the values of members that are not public hidden.
func (b *loginBodies) object(body []byte) []byte {
	isPublic := func(name []byte) bool { return slices.Contains(publicMembers, string(name)) }
	for name, value := range rawjson.Members(body) {
		if !isPublic(name) {
			b.secrets = append(b.secrets, textOf(value))
		}
	}
	var lines []string
	for name, value := range rawjson.Members(body) {
		line := append(rawjson.AppendQuote(nil, string(b.clean(name))), ": "...)
		switch isText := rawjson.Kind(value) == '"'; {
		case !isPublic(name), !isText && bytes.ContainsRune(value, '\\'): // an escape could hide a secret
			line = rawjson.AppendQuote(line, hidden)
		case isText:
			line = rawjson.AppendQuote(line, string(b.clean([]byte(textOf(value)))))
		default:
			line = append(line, b.clean(value)...)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return []byte("{\n  " + strings.Join(lines, ",\n  ") + "\n}")
}

// textOf returns the text of a JSON string, and any other value unchanged.
func textOf(value []byte) string {
	if text, err := rawjson.Unquote(value); err == nil {
		return text
	}
	return string(value)
}

// clean returns a text without the secrets that are known so far.
func (b *loginBodies) clean(text []byte) []byte {
	for _, secret := range b.secrets {
		if len(secret) >= minSecret {
			text = bytes.ReplaceAll(text, []byte(secret), []byte(hidden))
		}
	}
	return text
}

// received returns the public text of a response body. Responses to GET are public documents.
func (b *loginBodies) received(method string, body []byte) []byte {
	switch {
	case len(body) > maxLoginBody:
		return nil
	case method == http.MethodGet:
		return body
	case rawjson.Kind(body) == '{':
		return b.object(body)
	}
	return nil
}
