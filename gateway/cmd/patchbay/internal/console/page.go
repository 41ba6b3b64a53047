package console

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A route is a path of the console: a screen with a View, an action with an Act, or something else.
type route struct {
	Path  string
	Role  Role                               // that the path requires
	Title string                             // of the page
	Key   string                             // opens the screen after g; "" keeps it out of the navigation
	Order int                                // in the navigation
	View  func(r *request) (*View, error)    // for GET
	Act   func(r *request) (*Outcome, error) // for POST

	serve  func(w http.ResponseWriter, r *request) // instead of View and Act
	post   bool                                    // serve is for POST
	stream bool                                    // serve takes as long as the browser reads
}

// method returns the method of a route.
func (o *route) method() string {
	if o.Act != nil || o.post {
		return http.MethodPost
	}
	return http.MethodGet
}

// A View describes the content of a screen.
type View struct {
	Title     string // default: the title of the route
	Template  string // the name of a file in templates, without its extension
	Data      any
	Fragments []Fragment    // that the stream updates
	Every     time.Duration // how often the stream also calls View without a change; 0 for never
}

// An Outcome is the result of an action.
type Outcome struct {
	Location  string     // the page that the browser shows next; default: the page with the form
	Fragments []Fragment // that form.js places if the form has the attribute data-live
	Message   string     // that form.js announces
}

// A request is a request of a browser that may use its route.
type request struct {
	*http.Request
	console   *Console
	route     *route
	principal *mcp.Principal // nil for the local user
	role      Role
}

// adminURL is the URL of the admin API for [Options.Admin].
const adminURL = "http://localhost/admin/v1"

// maxAdminResponse limits a response of the admin API, whose pages contain at most 1,000 items.
const maxAdminResponse = 64 << 20

// get decodes the response of the admin API to a path with its query, such as /servers.
func (r *request) get(path string, v any) error { return r.admin(http.MethodGet, path, nil, v) }

// post sends a body to the admin API, nil for none, and decodes the response into v, which may be nil.
func (r *request) post(path string, body, v any) error {
	return r.admin(http.MethodPost, path, body, v)
}

func (r *request) admin(method, path string, body, v any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(r.Context(), method, adminURL+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := r.console.opts.Admin(r.principal).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAdminResponse))
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest {
		p := &gateway.Problem{Status: res.StatusCode, Code: "internal", Detail: http.StatusText(res.StatusCode)}
		_ = json.Unmarshal(text, p) // another body keeps the text of the status
		return p
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(text, v)
}

// dispatch serves a request for a route.
func (c *Console) dispatch(w http.ResponseWriter, r *request) {
	switch {
	case r.route.serve != nil:
		r.route.serve(w, r)
	case r.route.Act != nil:
		c.act(w, r)
	default:
		v, err := r.route.View(r)
		if err != nil {
			status, code := statusOf(err)
			c.showError(w, r, status, code, err.Error())
			return
		}
		c.showView(w, r, http.StatusOK, v)
	}
}

// act runs an action, and responds to a script with JSON and to a browser without scripts with a redirect.
func (c *Console) act(w http.ResponseWriter, r *request) {
	out, err := r.route.Act(r)
	switch {
	case err != nil && r.isScript():
		status, _ := statusOf(err)
		writeJSON(w, status, &response{Error: errorText(err)})
	case err != nil:
		status, code := statusOf(err)
		c.showError(w, r, status, code, errorText(err))
	case r.isScript():
		events, err := c.pages.events(out.Fragments)
		if err != nil {
			c.opts.Logger.Error("console: fragments not rendered", "path", r.route.Path, "error", err)
			writeJSON(w, http.StatusInternalServerError, &response{Error: "internal error"})
			return
		}
		writeJSON(w, http.StatusOK, &response{Location: out.Location, Events: events,
			Message: string(showHidden([]byte(out.Message)))})
	default:
		http.Redirect(w, r.Request, cmp.Or(out.Location, localReferer(r.Request), c.opts.Home), http.StatusSeeOther)
	}
}

// A response is the response to a form that a script sends.
type response struct {
	Location string  `json:"location,omitempty"`
	Events   []event `json:"events,omitempty"`
	Message  string  `json:"message,omitempty"`
	Error    string  `json:"error,omitempty"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the browser left
}

// localReferer returns the page that a form field "back" names, for browsers without scripts.
func localReferer(r *http.Request) string { return localPath(r.PostFormValue("back")) }

// statusOf returns the HTTP status and the code of an error.
func statusOf(err error) (status int, code string) {
	var p *gateway.Problem
	if errors.As(err, &p) && p.Status >= http.StatusBadRequest {
		return p.Status, p.Code
	}
	return http.StatusInternalServerError, ""
}

// errorText returns the text of an error, with hidden characters escaped.
func errorText(err error) string {
	var p *gateway.Problem
	if errors.As(err, &p) {
		return string(showHidden([]byte(p.Detail)))
	}
	return string(showHidden([]byte(err.Error())))
}

// A frame is the data of templates/page.html.
type frame struct {
	Title, Theme string
	Path, Query  string   // of the page, for the stream and the navigation
	Screens      []*route // that the role may open
	Role         Role
	Who          string // the principal; "" for the local user
	Version      string
	Live         bool // the page has a stream
	Data         any
}

// showView writes a page.
func (c *Console) showView(w http.ResponseWriter, r *request, status int, v *View) {
	f := &frame{Title: v.Title, Theme: themeOf(r.Request), Path: r.URL.Path, Query: r.URL.RawQuery, Role: r.role,
		Version: c.opts.Version, Live: len(v.Fragments) > 0, Data: v.Data}
	if f.Title == "" && r.route != nil {
		f.Title = r.route.Title
	}
	if r.principal != nil {
		f.Who = r.principal.Subject
	}
	for _, s := range c.screens {
		if r.role.grants(s.Role) {
			f.Screens = append(f.Screens, s)
		}
	}
	page, err := c.pages.render(v.Template, "page", f)
	if err != nil {
		c.opts.Logger.Error("console: page not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(page) // an error means that the browser left
	}
}

// An errorPage is the data of templates/error.html.
type errorPage struct {
	Status     int
	Title      string
	Code, Text string
}

// showError writes a page about an error. code is the code of a gateway's error, or "".
func (c *Console) showError(w http.ResponseWriter, r *request, status int, code, text string) {
	title := http.StatusText(status)
	c.showView(w, r, status, &View{Title: title, Template: "error", Data: errorPage{status, title, code, text}})
}

//go:embed templates
var templateFiles embed.FS

// pages contains the parsed templates. It is safe for concurrent use.
type pages struct {
	screens map[string]*template.Template // by name, each with the frame and all parts
	parts   *template.Template
}

// parsePages parses the templates.
func parsePages(c *Console) (*pages, error) {
	base := template.New("").Option("missingkey=error").Funcs(c.functions())
	texts := map[string]string{}
	err := fs.WalkDir(templateFiles, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := templateFiles.ReadFile(name)
		name = strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".html")
		if err == nil && (strings.HasPrefix(name, "part/") || name == "page") {
			_, err = base.New(name).Parse(string(text))
			return err
		}
		texts[name] = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	p := &pages{screens: map[string]*template.Template{}}
	for name, text := range texts {
		t, err := base.Clone()
		if err == nil {
			_, err = t.New("screen").Parse(text)
		}
		if err != nil {
			return nil, err
		}
		p.screens[name] = t
	}
	if _, err = base.New("screen").Parse(""); err != nil {
		return nil, err
	}
	p.parts = base
	return p, nil
}

// render executes a template of a screen, or of the parts if screen is "".
func (p *pages) render(screen, name string, data any) ([]byte, error) {
	t := p.parts
	if screen != "" {
		if t = p.screens[screen]; t == nil {
			return nil, fmt.Errorf("no template %q", screen)
		}
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return showHidden(b.Bytes()), nil
}

// functions returns the functions of templates.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		// asset returns the URL of a file in assets.
		"asset": func(name string) string { return c.assets.url(name) },
		// has reports whether the console has a screen at a path.
		"has": func(path string) bool { return c.paths[path] != nil },
		// link returns a path with a query of names and values.
		"link": link,
		// time returns a time for the attribute datetime; the text of a time element is that of clock.
		"time":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock": func(t time.Time) string { return t.Local().Format("15:04:05") },
		// bytes returns a number of bytes for people, indent JSON with line ends.
		"bytes":  term.FormatBytes,
		"indent": func(raw json.RawMessage) string { return indented(raw) },
		// assets returns the digest of the assets, with which live.js notices a newer console.
		"assets": func() string { return c.assets.digest },
	}
}

// link returns a path with a query of names and values.
func link(path string, words ...string) (string, error) {
	if len(words)%2 != 0 {
		return "", fmt.Errorf("link %s: a name without a value", path)
	}
	q := url.Values{}
	for i := 0; i < len(words); i += 2 {
		q.Set(words[i], words[i+1])
	}
	if len(q) == 0 {
		return path, nil
	}
	return path + "?" + q.Encode(), nil
}
