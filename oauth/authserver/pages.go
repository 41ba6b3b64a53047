package authserver

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/visible"
)

//go:embed pages/*.html pages/style.css
var pageFiles embed.FS

// maxShown is the maximum number of characters of a client's name that are shown: enough for real
// names, and too few to imitate the text of the page.
const maxShown = 80

const maxHost = 253 // Spec: RFC 1035, section 2.3.4

// A pageSet renders the pages: HTML without scripts that no other page can frame.
type pageSet struct {
	templates *template.Template
	styleHash string
	log       *slog.Logger
}

func newPageSet(log *slog.Logger) (*pageSet, error) {
	style, err := pageFiles.ReadFile("pages/style.css")
	if err != nil {
		return nil, err
	}
	// Browsers hash the exact content of the style element.
	css := "\n" + string(style)
	t := template.New("").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(css) }})
	if t, err = t.ParseFS(pageFiles, "pages/*.html"); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(css))
	return &pageSet{t, "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'", log}, nil
}

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

// write writes a page. The targets are the form-action sources of its Content-Security-Policy.
func (p *pageSet) write(w http.ResponseWriter, status int, name string, data any, targets []string) {
	var body bytes.Buffer
	if err := p.templates.ExecuteTemplate(&body, name+".html", data); err != nil {
		p.log.Error("authorization server: page template failed", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	if targets == nil {
		targets = []string{"'none'"}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+p.styleHash+"; form-action "+
		strings.Join(targets, " ")+"; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the error is that of a closed connection
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
	data := struct {
		pageHead
		Detail   string
		Back     template.URL
		BackHost string
	}{pageHead: pageHead{e.Title, s.o.Name}, Detail: e.Detail}
	// html/template would remove a redirect URI with a private-use scheme. The URI was checked
	// before; script schemes are refused here again.
	if u, err := url.Parse(e.Back); err == nil && e.Back != "" && !slices.Contains(scriptSchemes, u.Scheme) {
		data.Back, data.BackHost = template.URL(e.Back), redirectHost(u)
	}
	s.pages.write(w, e.Status, "error", data, nil)
}

var scriptSchemes = []string{"", "javascript", "data", "vbscript", "file", "blob", "about"}

// Spec: basic/authorization/client-registration (2026-07-28), Localhost Redirect URI Risks;
// basic/security_best_practices, Consent UI.
func (s *Server) showConsent(w http.ResponseWriter, _ *http.Request, in *interaction, c *client, res *Resource) {
	redirect, err := url.Parse(in.Redirect)
	if err != nil { // cannot happen: the request was checked
		redirect = &url.URL{}
	}
	data := struct {
		pageForm
		Origin, DocumentHost, ClientHost, RedirectHost, ResourceURL string

		Local, OnlyLocal, AppLink, Login bool

		Scopes    []Scope
		LoginName string // of the identity provider, if there is a single provider
	}{
		pageForm:     s.pageForm("Allow access", pathConsent, in, c.Name),
		Origin:       string(c.Origin),
		ClientHost:   hostOf(c.URI),
		RedirectHost: redirectHost(redirect),
		Local:        netx.IsLoopback(redirect.Hostname()),
		AppLink:      isAppLink(redirect),
		ResourceURL:  res.URL,
		Scopes:       keep(res.Scopes, func(sc Scope) bool { return slices.Contains(in.Scopes, sc.Name) }),
		Login:        s.o.Login != nil,
	}
	if u, ok := s.providerLogin.(*providerLogin); ok && len(u.providers) == 1 {
		data.LoginName = u.providers[0].o.Name
	}
	data.Resource = res.Name
	data.OnlyLocal = data.Local && !slices.ContainsFunc(c.RedirectURIs, func(uri string) bool {
		u, err := url.Parse(uri)
		return err == nil && !netx.IsLoopback(u.Hostname())
	})
	if c.Origin == originDocument {
		data.DocumentHost = hostOf(c.ID)
	}
	s.pages.write(w, http.StatusOK, "consent", data, s.formTargets(in.Redirect))
}

func (s *Server) pageForm(title, path string, in *interaction, clientName string) pageForm {
	f := pageForm{
		pageHead: pageHead{title, s.o.Name}, Action: s.issuer.Path + path, CSRF: in.CSRF,
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
