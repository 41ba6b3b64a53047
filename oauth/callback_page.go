package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"net/http"
	"strconv"
)

// A page is what a person sees in the browser when a login has come back.
type page struct {
	title, text string // plain text
	detail      string // of the authorization server; may be empty
}

var (
	pageForeign = page{title: "Nothing to see here",
		text: "This page takes the answer to a login, and what came is none that is waited for."}
	pageTwice = page{title: "This login is over", text: "Its answer has come before. You can close this page."}
	pageOpen  = page{title: "Almost there", text: "The answer has come. The program says how the login goes on; you can close this page."}
	pageDone  = page{title: "You are logged in", text: "You can close this page and go back to the program."}
)

// outcomePage tells a person what has come of a login.
func outcomePage(outcome error) (status int, p page) {
	if outcome == nil {
		return http.StatusOK, pageDone
	}
	refused, ok := errors.AsType[*LoginError](outcome)
	switch {
	case ok && refused.Code == "access_denied":
		return http.StatusOK, page{title: "You are not logged in", text: "The access was declined, and nothing was granted. You can close this page."}
	case ok:
		detail := refused.Code
		if refused.Description != "" {
			detail += ": " + refused.Description
		}
		return http.StatusOK, page{title: "The login has failed",
			text: "The authorization server refused it. The program says more; you can close this page.", detail: detail}
	}
	return http.StatusOK, page{title: "The login has failed", text: "The program says why. You can close this page."}
}

const pageStyle = `body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.5rem;color:#1b1f24;background:#fff}` +
	`h1{font-size:1.5rem}p.detail{font-family:ui-monospace,monospace;font-size:.875rem;overflow-wrap:anywhere;color:#57606a}` +
	`@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}p.detail{color:#9198a1}}`

// writePage sends a page, which loads nothing and runs nothing.
func writePage(w http.ResponseWriter, status int, p page) {
	body := `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
		`<title>` + html.EscapeString(p.title) + `</title><style>` + pageStyle + `</style></head><body><h1>` +
		html.EscapeString(p.title) + `</h1><p>` + html.EscapeString(p.text) + `</p>`
	if p.detail != "" {
		body += `<p class="detail">` + html.EscapeString(p.detail) + `</p>`
	}
	body += `</body></html>`
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
	_ = http.NewResponseController(w).Flush() // the server is closed when the page is written
}
