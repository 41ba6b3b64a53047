package authserver

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

//go:embed pages/*.html pages/style.css
var pageFiles embed.FS

// maxShown is how many characters of a name that a stranger chose are shown: enough for any real one, and too few to
// write a page into the page.
const maxShown = 80

// maxHost is how long the name of a host can be.
//
// Spec: RFC 1035, section 2.3.4.
const maxHost = 253

// A pageSet writes the pages for people: plain HTML without a script, which no other page can frame.
type pageSet struct {
	templates *template.Template
	styleHash string
	log       func(error)
}

func newPageSet(log func(error)) (*pageSet, error) {
	style, err := pageFiles.ReadFile("pages/style.css")
	if err != nil {
		return nil, err
	}
	// Exactly what stands in the element is what browsers hash.
	css := "\n" + string(style)
	t := template.New("").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(css) }})
	if t, err = t.ParseFS(pageFiles, "pages/*.html"); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(css))
	return &pageSet{templates: t, styleHash: "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'", log: log}, nil
}

// pageHead is what all pages have.
type pageHead struct {
	Title  string
	Server string
}

// pageForm is what all pages with a form have.
type pageForm struct {
	pageHead
	Action      string
	Interaction string
	CSRF        string
	Client      string
	Resource    string
}

// write writes a page. targets are where its form may lead, by whatever redirects.
func (p *pageSet) write(w http.ResponseWriter, status int, name string, data any, targets []string) {
	var body bytes.Buffer
	if err := p.templates.ExecuteTemplate(&body, name+".html", data); err != nil {
		p.log(err)
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
		return
	}
	if targets == nil {
		targets = []string{"'none'"}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+p.styleHash+"; form-action "+strings.Join(targets, " ")+
		"; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	noStore(h)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // whoever is gone needs no page
}

// formTargets returns where the form of an interaction may lead. Browsers apply it to every redirect that follows: to the
// login of a third party, which has hosts of its own, and in the end to the client.
func (s *Server) formTargets(redirect string) []string {
	targets := []string{"'self'", "https:"}
	u, err := url.Parse(redirect)
	switch {
	case s.issuer.Scheme == "http": // all this is on one machine, maybe the third party too
		targets = append(targets, "http:")
	case err != nil || u.Scheme == "https":
	case u.Scheme == "http" && !strings.Contains(u.Host, "["):
		targets = append(targets, "http://"+u.Host)
	case u.Scheme == "http": // the policy has no form for an IPv6 address
		targets = append(targets, "http:")
	}
	if err == nil && isAppLink(u) {
		targets = append(targets, u.Scheme+":")
	}
	return targets
}

// isAppLink reports whether a redirect URI leads to an app that has a scheme of its own.
func isAppLink(u *url.URL) bool { return u.Scheme != "https" && u.Scheme != "http" }

// A pageError is what a page tells somebody who cannot go on.
type pageError struct {
	Status int
	Title  string
	Detail string // what is wrong and what to do, in our words
	// Back, if not empty, is a link back to the client, shown with its host: the user decides whether to follow it.
	Back string
}

func (s *Server) showError(w http.ResponseWriter, _ *http.Request, e pageError) {
	data := struct {
		pageHead
		Detail   string
		Back     template.URL
		BackHost string
	}{pageHead: pageHead{e.Title, s.o.Name}, Detail: e.Detail}
	// A redirect URI with a scheme of its own is one of those that were checked when the client came; template would not
	// let it pass, and those that run a script come here in no other way than by a mistake.
	if u, err := url.Parse(e.Back); err == nil && e.Back != "" && !slices.Contains(scriptSchemes, u.Scheme) {
		data.Back, data.BackHost = template.URL(e.Back), redirectHost(u)
	}
	s.pages.write(w, e.Status, "error", data, nil)
}

// scriptSchemes are those of URLs that a link must never have.
var scriptSchemes = []string{"", "javascript", "data", "vbscript", "file", "blob", "about"}

// showConsent writes the page on which the user decides.
//
// Spec: basic/authorization/client-registration (2026-07-28), Localhost Redirect URI Risks; basic/security_best_practices,
// Consent UI.
func (s *Server) showConsent(w http.ResponseWriter, _ *http.Request, in *interaction, c *client, res *Resource) {
	redirect, err := url.Parse(in.Redirect)
	if err != nil { // it was parsed when the request came
		redirect = &url.URL{}
	}
	data := struct {
		pageForm
		Origin       string
		DocumentHost string
		ClientHost   string
		RedirectHost string
		Local        bool
		OnlyLocal    bool
		AppLink      bool
		ResourceURL  string
		Scopes       []Scope
		Login        bool
		LoginName    string // of the one third party that users log in with
	}{
		pageForm:     s.pageForm("Allow access", pathConsent, in, c.Name),
		Origin:       string(c.Origin),
		ClientHost:   hostOf(c.URI),
		RedirectHost: redirectHost(redirect),
		Local:        isLoopback(redirect.Hostname()),
		AppLink:      isAppLink(redirect),
		ResourceURL:  res.URL,
		Scopes:       scopesOf(res, in.Scopes),
		Login:        s.o.Login != nil,
	}
	if u, ok := s.providerLogin.(*providerLogin); ok && len(u.providers) == 1 {
		data.LoginName = u.providers[0].o.Name
	}
	data.Resource = res.Name
	data.OnlyLocal = data.Local && !slices.ContainsFunc(c.RedirectURIs, func(uri string) bool {
		u, err := url.Parse(uri)
		return err == nil && !isLoopback(u.Hostname())
	})
	if c.Origin == originDocument {
		data.DocumentHost = hostOf(c.ID)
	}
	s.pages.write(w, http.StatusOK, "consent", data, s.formTargets(in.Redirect))
}

// pageForm returns what all forms of an interaction have.
func (s *Server) pageForm(title, path string, in *interaction, clientName string) pageForm {
	f := pageForm{
		pageHead: pageHead{title, s.o.Name}, Action: s.issuer.Path + path, Interaction: in.ID, CSRF: in.CSRF,
		Client: shownName(clientName), Resource: in.Resource,
	}
	if f.Client == "" {
		f.Client = "an app without a name"
	}
	if res := s.resources[resourceKey(in.Resource)]; res != nil {
		f.Resource = res.Name
	}
	return f
}

// scopesOf returns those scopes of a resource that are asked for, in the order of the resource.
func scopesOf(res *Resource, names []string) []Scope {
	var scopes []Scope
	for _, sc := range res.Scopes {
		if slices.Contains(names, sc.Name) {
			scopes = append(scopes, sc)
		}
	}
	return scopes
}

// redirectHost returns what a user can judge a redirect by: its host, or the scheme of an app.
func redirectHost(u *url.URL) string {
	if isAppLink(u) {
		return u.Scheme + ":"
	}
	return u.Hostname()
}

// hostOf returns the host of an http or https URL, empty if it is none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return shownHost(u.Hostname())
}

// shownHost makes a host fit to be shown as shownName does, but never without its end, which says whose it is.
func shownHost(host string) string {
	text := []rune(shownText(host, len(host)))
	if len(text) > maxHost {
		return "…" + string(text[len(text)-maxHost:])
	}
	return string(text)
}

// blanks are letters and symbols that leave no mark.
const blanks = "\u115f\u1160\u2800\u3164\uffa0"

// shownName makes a name that a stranger chose fit to be shown: without characters that are invisible, change the
// direction or break the line, and not too long.
func shownName(name string) string { return shownText(name, maxShown) }

// shownText is shownName for at most so many characters.
func shownText(text string, most int) string {
	var b strings.Builder
	n, gap, marks := 0, false, 0
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			gap = n > 0
			continue
		case !unicode.IsPrint(r) || strings.ContainsRune(blanks, r): // also what formats, and what is no character
			continue
		case unicode.Is(unicode.M, r):
			if marks++; marks > 3 { // a pile of them reaches into other lines
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
		if n++; n > most {
			return strings.TrimSuffix(b.String(), " ") + "…"
		}
		b.WriteRune(r)
	}
	return b.String()
}
