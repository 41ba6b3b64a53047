package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"

	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

const connectStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:4rem auto;padding:0 1rem}
dt{color:#666}dd{margin:0 0 .7rem;font-weight:600;overflow-wrap:anywhere}button,input{font:inherit;padding:.4rem 1rem}
.warning{border-left:4px solid #c60;padding-left:1rem}`

type connectPage struct {
	Title, Text, Server, Endpoint, Caller, Problem, Ticket, CSRF string

	All bool // callers use the login
	Key bool // is asked for
}

// html returns a page without scripts.
func (c *connectPage) html() string {
	title := html.EscapeString(c.Title)
	page := `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex"><title>` + title + `</title><style>` + connectStyle + `</style></head>
<body><h1>` + title + `</h1>
`
	if c.Text != "" {
		page += `<p>` + html.EscapeString(c.Text) + "</p>\n"
	}
	if c.Server != "" {
		page += c.form()
	}
	return page + "</body></html>\n"
}

// form returns the description of the login, and its button.
func (c *connectPage) form() string {
	user, condition := "this caller uses", "you are this caller, and"
	if c.All {
		user, condition = "all callers of this gateway use", "this is your gateway, and you"
	}
	part := `<dl><dt>Server</dt><dd>` + html.EscapeString(c.Server) + ` (` + html.EscapeString(c.Endpoint) +
		`)</dd><dt>For the caller</dt><dd>` + html.EscapeString(c.Caller) + `</dd></dl>
<p class="warning">After the login, ` + user + ` the server with your access. Continue only if ` + condition +
		` have asked for this login yourself just now. If another person has sent you this address,
close the page.</p>
`
	if c.Problem != "" {
		part += `<p role="alert">` + html.EscapeString(c.Problem) + "</p>\n"
	}
	part += `<form method="post" action="` + html.EscapeString(c.Ticket) +
		`"><input type="hidden" name="csrf" value="` + html.EscapeString(c.CSRF) + "\">\n"
	if c.Key {
		part += `<p><label>Your key for this gateway<br>
<input type="password" name="key" required autocomplete="off"></label></p>
`
	}
	return part + "<button type=\"submit\">Log in</button></form>\n"
}

// connectPolicy returns the Content-Security-Policy. Browsers also apply form-action to the
// redirect after the form, whose host belongs to an authorization server.
func connectPolicy(local bool) string {
	sum := sha256.Sum256([]byte(connectStyle))
	targets := "'self' https:"
	if local { // a local authorization server may lack TLS
		targets += " http:"
	}
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action " + targets + "; base-uri 'none'; frame-ancestors 'none'"
}

// show writes the page of a login, with its button.
func (p *connectPages) show(
	w http.ResponseWriter, status int, l operator.Login, ticket, csrf, problem string,
) {
	p.write(w, status, &connectPage{Title: "Log in to " + shown(l.Server()), Server: shown(l.Server()),
		Endpoint: shown(l.Endpoint()), Caller: loginText(l), Ticket: ticket, CSRF: csrf,
		Problem: problem, All: l.IsForAll(), Key: p.asksKey(l.Principal())})
}

// message writes a page without a form.
func (p *connectPages) message(w http.ResponseWriter, status int, title, text string) {
	p.write(w, status, &connectPage{Title: title, Text: text})
}

func (p *connectPages) write(w http.ResponseWriter, status int, page *connectPage) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", connectPolicy(p.base().Scheme == "http"))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(page.html())) // an error means that the browser left
}

// loginText returns who uses a login, for users.
func loginText(l operator.Login) string {
	if l.IsForAll() {
		return "all callers of this gateway"
	}
	return callerText(l.Principal())
}

// callerText returns who a caller is, for users.
func callerText(c *mcp.Principal) string {
	if c == nil {
		return "the local user of this gateway"
	}
	text := shown(c.Subject)
	if c.Issuer != "" {
		text += " (" + shown(c.Issuer) + ")"
	}
	if c.ClientID != "" && c.Issuer != KeyIssuer { // the client ID of a key is a random generation
		text += " with the application " + shown(c.ClientID)
	}
	return text
}

// maxConnectText bounds a name on a page, in characters.
const maxConnectText = 200

// shown returns a text with hidden characters escaped, truncated to maxConnectText characters
// before.
func shown(text string) string {
	if runes := []rune(text); len(runes) > maxConnectText {
		text = string(runes[:maxConnectText]) + "…"
	}
	return visible.Escape(text, nil)
}
