package authserver

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/markup"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/visible"
)

// pageStyle is the style sheet of all pages.
//
//go:embed pages.css
var pageStyle markup.HTML

// maxShown is the maximum number of characters of a client's name that are shown: enough for real
// names, and too few to imitate the text of the page.
const maxShown = 80

const maxHost = 253 // Spec: RFC 1035, section 2.3.4

type pageHead struct {
	Title, Server string
}

type pageForm struct {
	pageHead
	Action, Interaction, CSRF, Client, Resource string
	// ElsewhereURL is the URL of the resource if it is not at the host of this server. The user
	// then does not see it in the address bar.
	ElsewhereURL string
}

// writePage writes a page: HTML without scripts that no other page can frame. The targets are the
// form-action sources of its Content-Security-Policy.
func writePage(w http.ResponseWriter, status int, head pageHead, content markup.HTML, targets []string) {
	if targets == nil {
		targets = []string{"'none'"}
	}
	style := "\n" + pageStyle
	sum := sha256.Sum256([]byte(style)) // browsers hash the exact content of the style element
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(sum[:])+"'; form-action "+strings.Join(targets, " ")+
		"; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(status)
	server := markup.Text(head.Server)
	page := `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>` + markup.Text(head.Title) + ` – ` + server + `</title>
<style>` + style + `</style>
</head>
<body>
<header>` + server + `</header>
<main>
` + content + `</main>
</body>
</html>
`
	_, _ = w.Write([]byte(page)) // the error is that of a closed connection
}

// formTargets returns the form-action sources of an interaction. Browsers apply them to all
// redirects after the form: to the identity provider, whose hosts are not known, and finally to the
// client.
func (s *Server) formTargets(redirect string) []string {
	targets := []string{"'self'", "https:"}
	u, err := url.Parse(redirect)
	switch {
	case s.issuer.Scheme == "http": // a local server may use a local identity provider
		targets = append(targets, "http:")
	case err != nil || u.Scheme == "https":
	case u.Scheme == "http" && !strings.Contains(u.Host, "["):
		targets = append(targets, "http://"+u.Host)
	case u.Scheme == "http": // a policy cannot contain an IPv6 address
		targets = append(targets, "http:")
	}
	if err == nil && isAppLink(u) {
		targets = append(targets, u.Scheme+":")
	}
	return targets
}

func isAppLink(u *url.URL) bool { return u.Scheme != "https" && u.Scheme != "http" }

type pageError struct {
	Status int
	Title  string
	Detail string // the reason and the remedy; never text from a client
	// Back is a link to the client, shown with its host. It may be empty.
	Back string
}

func (s *Server) showError(w http.ResponseWriter, _ *http.Request, e pageError) {
	content := `<h1>` + markup.Text(e.Title) + "</h1>\n" + `<p id="detail">` + markup.Text(e.Detail) + "</p>\n"
	if u, err := url.Parse(e.Back); err == nil && isLinkable(u) {
		content += `<p><a id="back" href="` + markup.Text(e.Back) + `" rel="noreferrer">Go back to ` +
			markup.Text(redirectHost(u)) + "</a></p>\n"
	}
	writePage(w, e.Status, pageHead{e.Title, s.o.Name}, content, nil)
}

// isLinkable reports whether a page may link to a redirect URI. The URI was checked before; the
// schemes of scripts are refused here again.
func isLinkable(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" || strings.Contains(u.Scheme, ".")
}

// Spec: basic/authorization/client-registration (2026-07-28), Localhost Redirect URI Risks;
// basic/security_best_practices, Consent UI.
func (s *Server) showConsent(w http.ResponseWriter, _ *http.Request, in *interaction, c *client, res *Resource) {
	redirect, err := url.Parse(in.Redirect)
	if err != nil { // cannot happen: the request was checked
		redirect = &url.URL{}
	}
	form := &consentForm{
		pageForm:     s.pageForm("Allow access", pathConsent, in, c.Name),
		Origin:       c.Origin,
		ClientHost:   hostOf(c.URI),
		RedirectHost: redirectHost(redirect),
		Local:        netx.IsLoopback(redirect.Hostname()),
		AppLink:      isAppLink(redirect),
		ResourceURL:  res.URL,
		Scopes:       keep(res.Scopes, func(sc Scope) bool { return slices.Contains(in.Scopes, sc.Name) }),
		Login:        s.o.Login != nil,
	}
	if u, ok := s.providerLogin.(*providerLogin); ok && len(u.providers) == 1 {
		form.LoginName = u.providers[0].o.Name
	}
	form.Resource = res.Name
	form.OnlyLocal = form.Local && !slices.ContainsFunc(c.RedirectURIs, func(uri string) bool {
		u, err := url.Parse(uri)
		return err == nil && !netx.IsLoopback(u.Hostname())
	})
	if c.Origin == originDocument {
		form.DocumentHost = hostOf(c.ID)
	}
	writePage(w, http.StatusOK, form.pageHead, form.html(), s.formTargets(in.Redirect))
}

func (s *Server) pageForm(title, path string, in *interaction, clientName string) pageForm {
	f := pageForm{
		pageHead: pageHead{title, s.o.Name}, CSRF: in.CSRF,
		Action:      (&url.URL{Path: s.issuer.Path + path}).EscapedPath(),
		Interaction: cmp.Or(in.sealed, in.ID),
		Client:      cmp.Or(shownName(clientName), "an unnamed app"), Resource: in.Resource,
	}
	if res := s.resource(in.Resource); res != nil {
		f.Resource = res.Name
	}
	if u, err := url.Parse(in.Resource); err == nil && plainHost(u.Host) != plainHost(s.issuer.Host) {
		f.ElsewhereURL = in.Resource
	}
	return f
}

// redirectHost returns the part of a redirect URI that the consent page shows: its host, or the
// scheme of an app.
func redirectHost(u *url.URL) string {
	if isAppLink(u) {
		return u.Scheme + ":"
	}
	return u.Hostname()
}

// hostOf returns the host of an http or https URL for display, "" for any other text.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return shownHost(u.Hostname())
}

// shownHost returns a host for display. If it is too long, its beginning is removed: the end
// contains the registered domain.
func shownHost(host string) string {
	text := []rune(shownText(host, len(host)))
	if len(text) > maxHost {
		return "…" + string(text[len(text)-maxHost:])
	}
	return string(text)
}

// shownName returns a name from a client for display. It removes characters that are invisible,
// change the writing direction or break the line, and truncates a long name.
func shownName(name string) string { return shownText(name, maxShown) }

func shownText(text string, limit int) string {
	var b strings.Builder
	n, gap, marks := 0, false, 0
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			gap = n > 0
			continue
		case !unicode.IsPrint(r) || visible.Hidden(r):
			continue
		case unicode.Is(unicode.M, r):
			if marks++; marks > 3 { // more would extend into other lines
				continue
			}
		default:
			marks = 0
		}
		if gap {
			b.WriteByte(' ')
			gap = false
			n++
		}
		if n++; n > limit {
			return strings.TrimSuffix(b.String(), " ") + "…"
		}
		b.WriteRune(r)
	}
	return b.String()
}
