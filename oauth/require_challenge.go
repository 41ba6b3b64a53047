package oauth

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// insufficientScope returns the description of a refusal. A challenge cannot quote the scopes.
func insufficientScope(needed []string) string {
	return "the token does not have all of these scopes: " + strings.Join(needed, ", ")
}

// retryAfterSeconds is for requests whose token could not be verified.
const retryAfterSeconds = "5"

type denial struct {
	status      int
	code        string // of the error, empty for a request without a token
	description string // for the client
	scopes      []string
	cause       error          // for the log, nil without details to add
	principal   *mcp.Principal // of a valid token; may be nil
}

// reason returns the error for [RequireOptions.Audit].
func (no *denial) reason() error {
	switch {
	case no == errNoToken:
		return errors.New("oauth: the request has no access token")
	case no.scopes != nil:
		return &ScopeError{Scopes: no.scopes}
	case no.cause != nil:
		return no.cause
	}
	return errors.New("oauth: " + no.description)
}

var errNoToken = &denial{status: http.StatusUnauthorized}

func badToken(description string, cause error) *denial {
	return &denial{
		status: http.StatusUnauthorized, code: oauthwire.InvalidToken, description: description, cause: cause,
	}
}

func badBinding(description string) *denial {
	return badToken(description, invalidToken("%s", description))
}

func badRequest(description string) *denial {
	return &denial{status: http.StatusBadRequest, code: oauthwire.InvalidRequest, description: description}
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, scheme string, no *denial) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Type", "application/json")
	// The response says nothing that the public metadata does not say, so every page may read it.
	head.Set("Access-Control-Allow-Origin", "*")
	head.Set("Access-Control-Expose-Headers", "WWW-Authenticate, DPoP-Nonce, Retry-After")
	body := map[string]string{}
	if no.status == http.StatusServiceUnavailable {
		if r.Context().Err() == nil { // otherwise the client disconnected
			g.opts.Logger.ErrorContext(r.Context(), "oauth: access token not verified", "error", no.cause)
		}
		head.Set("Retry-After", retryAfterSeconds)
		body["error"] = "temporarily_unavailable"
		body["error_description"] = "the access token cannot be verified at the moment"
	} else {
		level := slog.LevelInfo
		if no.code == "" {
			level = slog.LevelDebug // every client begins like this
		}
		reason := cmp.Or(no.description, "no access token was sent")
		attrs := []any{"status", no.status, "error", no.code, "reason", reason, "remote", r.RemoteAddr}
		if no.cause != nil {
			attrs = append(attrs, "cause", no.cause)
		}
		if no.principal != nil {
			attrs = append(attrs, "subject", no.principal.Subject)
		}
		g.opts.Logger.Log(r.Context(), level, "oauth: request refused", attrs...)
		head["Www-Authenticate"] = g.challenges(scheme, no)
		body["error_description"] = "an access token is needed"
		if no.code != "" {
			body["error"], body["error_description"] = no.code, no.description
		}
	}
	text, _ := json.Marshal(body) // a map of strings
	w.WriteHeader(no.status)
	_, _ = w.Write(text)
}

// challenges returns a challenge for each supported scheme. The challenge for the request's scheme
// contains the error.
func (g *guard) challenges(scheme string, no *denial) []string {
	schemes := []string{oauthwire.Bearer}
	if g.proofs != nil {
		schemes = append(schemes, oauthwire.DPoP)
		if g.proofs.Required() {
			schemes, scheme = schemes[1:], oauthwire.DPoP
		}
	}
	if !slices.Contains(schemes, scheme) {
		scheme = schemes[0]
	}
	var all []string
	for _, s := range schemes {
		c := g.challenge(s)
		scopes := g.defaultScopes
		if s == scheme && no.code != "" {
			c.Params["error"], c.Params["error_description"] = no.code, no.description
			if no.scopes != nil {
				scopes = no.scopes
			}
		}
		if len(scopes) > 0 {
			c.Params["scope"] = strings.Join(scopes, " ")
		}
		all = append(all, c.String())
	}
	return all
}

// challenge returns the challenge without the parameters that depend on the request.
func (g *guard) challenge(scheme string) Challenge {
	c := Challenge{Scheme: scheme, Params: map[string]string{}}
	if g.resource.document != nil {
		c.Params["resource_metadata"] = g.resource.metadataURL()
	}
	if scheme == oauthwire.DPoP {
		c.Params["algs"] = g.algs
	}
	return c
}

// maxForm limits how much of a form is searched for a token, in bytes.
const maxForm = 64 << 10

type credentials struct {
	scheme string // oauthwire.Bearer or oauthwire.DPoP
	token  string
}

// readCredentials reads the token in the header of a request. A token in the query, which appears
// in logs, histories and caches, is refused instead of ignored. Spec: RFC 6750, sections 2 and 3.1;
// basic/authorization, Access Token Usage.
func readCredentials(r *http.Request) (credentials, *denial) {
	c := credentials{scheme: oauthwire.Bearer}
	if r.URL.RawQuery != "" && r.URL.Query().Has("access_token") {
		return c, badRequest("the access token must be in the Authorization header, not in the query")
	}
	if len(r.Header["Authorization"]) > 1 {
		return c, badRequest("there must be only one Authorization header")
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
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
	// Some providers, such as Cloudflare's, issue tokens with colons, which RFC 6750 does not
	// allow. Only characters that separate credentials are refused.
	if !oauthwire.IsNQChars(c.token) || strings.Contains(c.token, ",") {
		return c, badRequest("the Authorization header is malformed")
	}
	return c, nil
}

// formContainsToken reports whether the body is a form with another access_token. It can be read
// again. Only requests with a valid token in the header are searched: for the others it must not
// cost memory. Spec: RFC 6750, section 2.
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
