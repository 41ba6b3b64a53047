package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// dispatch serves a request for a route.
func (c *Console) dispatch(w http.ResponseWriter, r *page.Request, o *page.Route) {
	err := checkServers(r, o)
	switch {
	case o.Act != nil:
		c.act(w, r, o, err)
	case err != nil:
		c.showProblem(w, r, err)
	case o.Serve != nil:
		if err := o.Serve(w, r); err != nil {
			c.showProblem(w, r, err)
		}
	default:
		v, err := o.View(r)
		if err != nil {
			c.showProblem(w, r, err)
			return
		}
		c.showView(w, r, o, http.StatusOK, v)
	}
}

// checkServers rejects a request for a server that the person may not use, unless the route is for AnyServer.
func checkServers(r *page.Request, o *page.Route) error {
	if o.AnyServer || r.Principal == nil {
		return nil
	}
	_ = r.ParseForm() // the handler parses an invalid form in the same way
	for _, name := range r.Form["server"] {
		if !r.Opens(name) {
			return servers.Unknown(name)
		}
	}
	return nil
}

// act runs an action unless a check failed with err, and responds to a script with JSON and to a browser
// without scripts with a redirect.
func (c *Console) act(w http.ResponseWriter, r *page.Request, o *page.Route, err error) {
	var out *page.Outcome
	if err == nil {
		out, err = o.Act(r)
	}
	switch {
	case err != nil && isScript(r.Request):
		status, _ := statusOf(err)
		writeJSON(w, status, &response{Error: page.ErrorText(err)})
	case err != nil:
		c.showProblem(w, r, err)
	case out.View != nil:
		c.showView(w, r, o, cmp.Or(out.Status, http.StatusOK), out.View)
	case isScript(r.Request):
		events, err := eventsOf(c.site, out.Fragments)
		if err != nil {
			c.opts.Logger.Error("console: fragments not rendered", "path", o.Path, "error", err)
			writeJSON(w, http.StatusInternalServerError, &response{Error: "internal error"})
			return
		}
		writeJSON(w, http.StatusOK, &response{Location: out.Location, Events: events,
			Message: page.Escape(out.Message)})
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

// A frame is the data of a whole page.
type frame struct {
	Title, Theme string
	Path, Query  string   // of the page, for the stream and the navigation
	Screens      []screen // that the role may open
	Waiting      int      // items that wait for the person
	Alert        page.Badge
	Role         page.Role
	Who          string // the principal; "" for the local user
	CanLeave     bool   // the person can log out
	Version      string
	Live         bool // the page has a stream
	Body         templ.Component
}

// URL returns the path with its query, for a link.
func (f *frame) URL() string {
	if f.Query == "" {
		return f.Path
	}
	return f.Path + "?" + f.Query
}

// windowTitle returns the title of the window, with the number of items that wait.
func (f *frame) windowTitle() string {
	if f.Waiting > 0 {
		return fmt.Sprintf("(%d) %s", f.Waiting, f.Title)
	}
	return f.Title
}

// A screen is a link of the navigation.
type screen struct {
	*page.Route
	Badge *badge // nil for a screen without a badge
}

// A badge is the number of items of a screen that wait.
type badge struct {
	ID string
	page.Badge
}

// badges returns the badges that the role may see, by path. Each page computes them, so they must
// be cheap. A badge that fails is left out: its screen shows the error.
func (c *Console) badges(r *page.Request) map[string]*badge {
	all := map[string]*badge{}
	for _, s := range c.keys {
		if s.Badge == nil || !r.Role.Grants(s.Role) {
			continue
		}
		if b, err := s.Badge(r); err == nil {
			all[s.Path] = &badge{"badge-" + page.ElementID(s.Path), b}
		}
	}
	return all
}

// alertOf returns the alert of a page: the newest item that waits for the person. The Count is 0 if nothing waits,
// and on the screen that lists all items.
func alertOf(badges map[string]*badge, path string) page.Badge {
	for at, b := range badges {
		if b.URL != "" && at != path {
			return b.Badge
		}
	}
	return page.Badge{}
}

// fragmentsOf returns the fragments of badges and of the alert of a page.
func fragmentsOf(badges map[string]*badge, path string) (all []page.Fragment) {
	all = append(all, page.Fragment{ID: "alert", Body: alertPart(alertOf(badges, path))})
	for _, path := range slices.Sorted(maps.Keys(badges)) {
		all = append(all, page.Fragment{ID: badges[path].ID, Body: badgePart(badges[path])})
	}
	return all
}

// showView writes a page of a route, nil for a page of the console itself.
func (c *Console) showView(w http.ResponseWriter, r *page.Request, o *page.Route, status int, v *page.View) {
	f := &frame{Title: v.Title, Theme: themeOf(r.Request), Path: r.URL.Path, Query: r.URL.RawQuery, Role: r.Role,
		Version: c.opts.Version, Body: v.Body, Live: o != nil && o.View != nil && r.Role.Grants(page.RoleViewer)}
	if o != nil {
		f.Title = cmp.Or(v.Title, o.Title)
	}
	f.CanLeave = c.opts.Authenticate == nil && r.Context().Value(personKey{}) == nil
	if r.Principal != nil {
		f.Who = r.Principal.Subject
	}
	badges := c.badges(r)
	f.Alert = alertOf(badges, r.URL.Path)
	for _, s := range c.keys {
		if r.Role.Grants(s.Role) {
			b := badges[s.Path]
			f.Screens = append(f.Screens, screen{s, b})
			if b != nil {
				f.Waiting += b.Count
			}
		}
	}
	text, err := c.site.Render(framePage(f))
	if err != nil {
		c.opts.Logger.Error("console: page not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	if v.Frames != "" {
		w.Header().Set("Content-Security-Policy", policyWith(v.Frames))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // an error means that the browser left
	}
}

// An errorPage describes an error.
type errorPage struct {
	Status     int
	Title      string
	Code, Text string
}

// showError writes a page about an error. code is the code of a gateway's error, or "".
func (c *Console) showError(w http.ResponseWriter, r *page.Request, status int, code, text string) {
	title := http.StatusText(status)
	v := &page.View{Title: title, Body: errorBody(&errorPage{status, title, code, text})}
	c.showView(w, r, nil, status, v)
}

// showProblem writes a page about the error of a route.
func (c *Console) showProblem(w http.ResponseWriter, r *page.Request, err error) {
	status, code := statusOf(err)
	c.showError(w, r, status, code, page.ErrorText(err))
}
