package oauthclient

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"net/http"
	"net/url"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// A page is shown in the browser after the login.
type page struct {
	title, text     string // title and text are plain text, as all fields are
	detail          string // of the authorization server; may be empty
	server, program string // of the login; empty for requests that do not have its state
}

// of returns the page with the names of a login.
func (p page) of(login *LoginRequest) page {
	if u, err := url.Parse(login.Server); err == nil {
		p.server = oauthfetch.CleanText(u.Host, maxShown)
	}
	p.program = oauthfetch.CleanText(login.Program, maxShown)
	return p
}

// maxShown bounds a name on a page, in bytes: no host is longer.
const maxShown = 255

var (
	pageUnexpected = page{title: "Unexpected request",
		text: "This request does not belong to a login in progress. You can close this page."}
	pageRepeated = page{title: "Login already completed", text: "The response to this login was received before. " +
		"You can close this page."}
	pagePending = page{title: "Almost done", text: "The response was received. The program shows how the login " +
		"ends; you can close this page."}
	pageDone = page{title: "You are logged in", text: "You can close this page and go back to the program."}
)

// outcomePage returns the page for the outcome of a login.
func outcomePage(outcome error) page {
	if outcome == nil {
		return pageDone
	}
	refused, ok := errors.AsType[*LoginError](outcome)
	switch {
	case ok && refused.Code == "access_denied":
		return page{title: "You are not logged in", text: "Access was declined. You can close this page."}
	case ok:
		detail := refused.Code
		if refused.Description != "" {
			detail += ": " + refused.Description
		}
		return page{title: "Login failed",
			text: "The authorization server refused the login. The program shows details; you can close this page.", detail: detail}
	}
	return page{title: "Login failed", text: "The program shows the reason. You can close this page."}
}

const pageStyle = `:root{color-scheme:light dark}*{box-sizing:border-box}` +
	`body{margin:0;padding:12vh 1rem 2rem;display:flex;justify-content:center;background:#f2f4f7;color:#16191d;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}` +
	`main{width:100%;max-width:30rem;padding:2rem;background:#fff;border:1px solid #d5dbe2;border-radius:12px;align-self:start}` +
	`h1{margin:0 0 .75rem;font-size:1.375rem;line-height:1.3;font-weight:650}p{margin:.5rem 0}` +
	`p.detail{font-family:ui-monospace,monospace;font-size:.875rem;color:#55606c}` +
	`dl{margin:1.5rem 0 0;padding-top:1.25rem;border-top:1px solid #d5dbe2;display:grid;grid-template-columns:max-content 1fr;gap:.375rem 1rem}` +
	`dt{color:#55606c}dd{margin:0;min-width:0}` +
	`@media(max-width:26rem){body{padding:1rem .75rem}main{padding:1.25rem}}` +
	`@media(prefers-color-scheme:dark){body{background:#121519;color:#e9ecf0}main{background:#1c2026}` +
	`main,dl{border-color:#39414c}p.detail,dt{color:#a4aeba}}`

// writePage sends a page without external resources and scripts.
func writePage(w http.ResponseWriter, status int, p page) {
	body := `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
		`<title>` + html.EscapeString(p.title) + `</title><style>` + pageStyle + `</style></head><body><main><h1>` +
		html.EscapeString(p.title) + `</h1><p>` + html.EscapeString(p.text) + `</p>`
	if p.detail != "" {
		body += `<p class="detail">` + html.EscapeString(p.detail) + `</p>`
	}
	names := ""
	for _, name := range []struct{ what, text string }{{"MCP server", p.server}, {"Program", p.program}} {
		if name.text != "" {
			names += `<dt>` + name.what + `</dt><dd><bdi>` + html.EscapeString(name.text) + `</bdi></dd>`
		}
	}
	if names != "" {
		body += `<dl>` + names + `</dl>`
	}
	body += `</main></body></html>`
	style := sha256.Sum256([]byte(pageStyle))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(style[:])+
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
	_ = http.NewResponseController(w).Flush() // Close stops the server once the page is written
}
