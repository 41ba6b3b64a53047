// Package page is the framework of the screens of the web console: routes, views, live parts and
// templates. A screen is a package beside this package, which imports it; package console serves
// the screens.
//
// # How a screen is added
//
// Package inbox is the example to copy. A screen consists of Go files and of templates (*.templ), each
// a function that returns a component. The command .ci/templates compiles the templates to Go.
//
//  1. Export a function New that returns a [Screen] with its routes. Call New in console.New. A
//     route must name its path and the role that it requires, and a test lists all of them; a path
//     has no variables, because the query of the URL contains the state of a screen, as in
//     /explore?server=fs&tool=read_file.
//
//  2. A screen is a route with a View. View returns the body of the page, and the fragments of the
//     page. The body must contain each fragment, as an element with the ID of the fragment, by
//     rendering the same component with the same data:
//
//     view:     Fragments: []page.Fragment{{ID: "summary", Body: summary(d.Status)}}
//     body:     @summary(d.Status)
//     summary:  <section id="summary">…</section>
//
//  3. The stream of a page calls View again after each change, at most ten times a second, and sends
//     the fragments whose HTML changed. Call [Site.Changed] after a change that the admin API
//     reports no event about. A list whose items come and go has a fragment for each item: set In to
//     the ID of the list, and Place to where a new item belongs. Set Version to skip rendering.
//
//  4. An action is a route with an Act: a form with method="post" and the path of the route. form.js
//     sends a form with the attribute data-live, and places the fragments of the [Outcome]. Without
//     scripts the browser goes to its Location. A route with Serve writes its own response, such as a
//     download.
//
//  5. Errors of View, Act and Serve become an error page or message. [Problem], [Request.Get] and
//     [Request.Post] return a *gateway.Problem, whose code and detail the page shows.
//
//  6. A page must not wait for a server: [Site.Background] starts work that ends with the console.
//     Screen.Heard hears the events of the admin API, and Screen.Follow runs while the console serves.
//
// Components may call [Has], [Asset], [Link], [If], [Time], [Clock] and [Indent]. The generator normalizes
// white space: between two inline elements it keeps a space, and drops the spaces at the ends of an element, so
// that these spaces are written as { " " }. A line end before the brace that closes a branch or a loop
// is a space if an inline element follows. The text of a textarea must begin with a line end, which
// browsers drop: { "\n" + text }. Attributes are written name={ value }, because showHidden looks for
// value=" on the page. A template must not contain a script, an inline style, an event attribute or
// a literal URL of another site, and no code may call the functions of templ that do not escape;
// TestConsoleAssets checks it. Elements with data-row are selected with j and k; data-primary marks
// their link. An element with data-filter is focused with /.
package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Role limits the actions of a person in the console.
type Role string

// Roles. An operator may do everything that a viewer may do.
const (
	RoleViewer   Role = "viewer"   // reads
	RoleOperator Role = "operator" // also runs, decides, restarts, approves and edits
	// RoleAnyone is the role of paths without data, which are served before the login. No person
	// has it.
	RoleAnyone Role = "anyone"
)

// Grants reports whether a person with the role may use a path that requires another role.
func (r Role) Grants(required Role) bool {
	return required == RoleAnyone || r == RoleOperator || r == RoleViewer && required == RoleViewer
}

// A Screen contains the routes of a package.
type Screen struct {
	Routes []*Route
	// Follow, if it is set, runs while the console serves. It must return after the end of ctx.
	Follow func(ctx context.Context)
	// Heard, if it is set, is called for each event of the admin API, before the pages change.
	Heard func(e Event)
}

// An Event is an event of the admin API, such as the type "server". The zero Event reports that
// events may have been lost: anything may have changed.
type Event struct {
	Type   string
	Server string // "" for an event that concerns no server, or all
	State  string // of an instance, for an event of a server
	// Data is the event as the admin API sent it.
	Data json.RawMessage `json:"-"`
	// Method, Outcome and Millis describe the end of a call: its outcome is ok, error or refused.
	Method  string
	Outcome string
	Millis  float64 `json:"ms"`
}

// A Route is a path of the console: a screen with a View, an action with an Act, or something else
// with a Serve.
type Route struct {
	Path  string
	Role  Role                            // that the path requires
	Title string                          // of the page
	Key   string                          // opens the screen after g; "" keeps it out of the navigation
	Order int                             // in the navigation
	View  func(r *Request) (*View, error) // for GET
	// Badge, if it is set, counts the items that wait for a person. Every page shows the number.
	Badge func(r *Request) (Badge, error)
	Act   func(r *Request) (*Outcome, error) // for POST
	// Serve writes the response, in place of View and Act. It must not write before it returns an
	// error.
	Serve  func(w http.ResponseWriter, r *Request) error
	Post   bool // Serve is for POST
	Stream bool // Serve takes as long as the browser reads
	// AnyServer makes the route also serve requests whose parameter server names a server that the person
	// may not use. The route must then hide the output of the server: see [Request.ReadsOutput].
	// Default: the console responds that the server does not exist.
	AnyServer bool
}

// Method returns the method of a route.
func (o *Route) Method() string {
	if o.Act != nil || o.Post {
		return http.MethodPost
	}
	return http.MethodGet
}

// A Badge counts the items of a screen that wait for a person.
type Badge struct {
	Count int
	News  string // the newest item in a few words, which a page announces when Count rises
	URL   string // the page that decides about the newest item; default: no page
}

// A View describes the content of a screen.
type View struct {
	Title     string          // default: the title of the route
	Body      templ.Component // of the page, without its frame
	Fragments []Fragment      // that the stream updates
	Frames    string          // the origin of the frames that the page contains, or ""
	Every     time.Duration   // how often the stream also calls View without a change; 0 for never
}

// An Outcome is the result of an action.
type Outcome struct {
	Location  string     // the page that the browser shows next; default: the page with the form
	Fragments []Fragment // that form.js places if the form has the attribute data-live
	Message   string     // that form.js announces
	// View, if it is set, is the response in place of Location, to a form without the attribute
	// data-live: for a page that cannot be fetched again. Status is its status; default: 200.
	View   *View
	Status int
}

// A Fragment is a part of a page that the stream updates: one element, with ID as its id.
type Fragment struct {
	ID   string
	Body templ.Component
	// In is the id of the list that contains the fragment, and Place where a new fragment belongs:
	// fragments are placed in their order. Default: the page contains the fragment, which is
	// replaced.
	In    string
	Place Place
	// Version, if it is not empty, must change whenever the HTML changes. The stream then renders
	// the fragment only after a change.
	Version string
}

// Problem returns an error that the browser shows: a [*gateway.Problem].
func Problem(status int, code, format string, args ...any) error {
	return &gateway.Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// A Place is where a browser puts a fragment.
type Place string

// Places.
const (
	Append  Place = "append"  // last in its list, unless the list contains it
	Prepend Place = "prepend" // first in its list, unless the list contains it
)

// A Request is a request of a person who may use its route.
type Request struct {
	*http.Request
	Principal *mcp.Principal // nil for the local user
	Role      Role           // of the person
	Live      bool           // the stream of a page renders the page again
	// Check identifies the person again, for a route with Stream: it sets Principal and Role, and
	// reports whether the person may still use the route.
	Check func() bool

	site *Site
}

// Opens reports whether the person may use a server: the key or login of the person must grant the
// server. The local user may use all servers.
func (r *Request) Opens(server string) bool {
	return r.Principal == nil || r.site.Opens == nil || r.site.Opens(r.Principal, server)
}

// Access identifies the access of a principal: keys of the same person may grant different servers.
func Access(p *mcp.Principal) string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(p.Key(), p.Claims["key"])
}

// ReadsOutput reports whether the person is an operator who may use a server. Other people see no
// standard error, log lines and messages of the server, and no observations of the doctor.
func (r *Request) ReadsOutput(server string) bool {
	return r.Role.Grants(RoleOperator) && r.Opens(server)
}

// Get decodes the response of the admin API to a path with its query, such as /servers. It returns
// a [*gateway.Problem] for a response with an error.
func (r *Request) Get(path string, v any) error { return r.Call(http.MethodGet, path, nil, v) }

// Post sends a body to the admin API, nil for none, and decodes the response into v, which may be
// nil. It returns the errors of [Request.Get].
func (r *Request) Post(path string, body, v any) error { return r.Call(http.MethodPost, path, body, v) }

// Call sends a request with any method to the admin API, as [Request.Post] does.
func (r *Request) Call(method, path string, body, v any) error {
	return r.site.Call(r.Context(), r.Principal, method, path, body, v)
}
