// Package serverpage is the screen of the web console about one server: its state, configuration,
// instances, standard error and login.
package serverpage

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/doctorpage"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

const (
	// maxLines bounds the lines of standard error of a page.
	maxLines = 500
	// every is the interval at which the page is rendered without an event: no event reports a line
	// of standard error, or that a request begins.
	every = time.Second
)

// A screen shows the page of a server. It is safe for concurrent use.
type screen struct {
	site   *page.Site
	doctor *doctorpage.Doctor
	logins logins
}

// New returns the screen. doctor examines the servers that fail, and may be nil.
func New(site *page.Site, doctor *doctorpage.Doctor) *page.Screen {
	s := &screen{site: site, doctor: doctor}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/server", Role: page.RoleViewer, AnyServer: true, Title: "Server", View: s.view},
		{Path: "/server/login", Role: page.RoleOperator, Act: s.login},
		{Path: "/server/logout", Role: page.RoleOperator, Act: s.logout},
	}}
}

// A server is a server of GET /servers/NAME, as far as the page shows it.
type server struct {
	servers.Row
	Suspended    int   `json:"suspended"`
	RetryAfterMs int64 `json:"retryAfterMs"`
	Limits       struct {
		Running     int               `json:"running"`
		Queued      int               `json:"queued"`
		Concurrency int               `json:"concurrency"`
		Queue       int               `json:"queue"`
		Instances   int               `json:"instances"`
		Breaker     string            `json:"breaker"`
		Refused     map[string]uint64 `json:"refused"`
	} `json:"limits"`
}

// Retry returns the time until the next attempt to connect, or "".
func (s *server) Retry() string {
	if s.RetryAfterMs <= 0 {
		return ""
	}
	return (time.Duration(s.RetryAfterMs) * time.Millisecond).Round(time.Second).String()
}

// Refused returns the number of refused requests.
func (s *server) Refused() (n uint64) {
	for _, refused := range s.Limits.Refused {
		n += refused
	}
	return n
}

// A tab is a part of the page.
type tab struct{ Name, Title, URL string }

// stderrTab is the tab with standard error. Only operators who may use the server see the tab, because standard
// error may describe requests of other callers.
const stderrTab = "stderr"

// tabs are the tabs in their order.
var tabs = []tab{{Name: "info", Title: "Info"}, {Name: "configuration", Title: "Configuration"},
	{Name: "instances", Title: "Instances"}, {Name: stderrTab, Title: "Standard error"},
	{Name: "login", Title: "Login"}}

// A serverPage is the data of serverBody.
type serverPage struct {
	Server  server
	Tab     string
	Tabs    []tab
	Role    page.Role
	Values  []gateway.ServerValue
	Missing string // why the configuration is not shown
	Lines   []Line
	Wrap    bool
	Login   *login                  // that is pending, or nil
	Doctor  *doctorpage.Examination // of a server that fails, or nil
}

// Path returns the URL of the tab.
func (p *serverPage) Path() (string, error) {
	return page.Link("/server", "server", p.Server.Name, "tab", p.Tab)
}

// Operates reports whether the person may change something.
func (p *serverPage) Operates() bool { return p.Role.Grants(page.RoleOperator) }

// A Line is a line of standard error.
type Line struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	Text     string    `json:"text"`
}

// Element returns the id of the element of the line.
func (l *Line) Element() string { return "line-" + strconv.FormatUint(l.Number, 10) }

func (s *screen) view(r *page.Request) (*page.View, error) {
	name, path := r.URL.Query().Get("server"), "/servers/"+url.PathEscape(r.URL.Query().Get("server"))
	if name == "" {
		return nil, servers.Unknown(name)
	}
	p := &serverPage{Role: r.Role, Tab: r.URL.Query().Get("tab"), Wrap: r.URL.Query().Get("wrap") != "off"}
	if err := r.Get(path, &p.Server); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(tabs, func(t tab) bool { return t.Name == p.Tab }) {
		p.Tab = tabs[0].Name
	}
	readsOutput := r.ReadsOutput(name)
	if p.Tab == stderrTab && !readsOutput {
		return nil, page.Problem(http.StatusForbidden, "", "standard error is for operators who may use the server")
	}
	for _, t := range tabs {
		if t.Name == stderrTab && !readsOutput {
			continue
		}
		var err error
		if t.URL, err = page.Link("/server", "server", name, "tab", t.Name); err != nil {
			return nil, err
		}
		p.Tabs = append(p.Tabs, t)
	}
	v := &page.View{Title: name, Body: serverBody(p), Every: every,
		Fragments: []page.Fragment{{ID: "server-head", Body: headPart(p)}}}
	add := func(f page.Fragment) { v.Fragments = append(v.Fragments, f) }
	switch p.Tab {
	case "info":
		p.Doctor = s.doctor.Examination(r, &p.Server.Row)
		add(page.Fragment{ID: "server-info", Body: infoPart(p)})
		add(p.Doctor.Fragment())
	case "instances":
		add(page.Fragment{ID: "server-instances", Body: instancesPart(p)})
	case "login":
		if p.Operates() { // the page is a secret of the person who logs in
			p.Login = s.logins.of(r, name)
		}
		add(page.Fragment{ID: "server-login", Body: loginPart(p)})
	case "configuration":
		return v, p.configuration(r, path)
	case stderrTab:
		return v, p.stderr(r, path, add)
	}
	return v, nil
}

// configuration adds the values of the configuration.
func (p *serverPage) configuration(r *page.Request, path string) error {
	var list struct{ Values []gateway.ServerValue }
	err := r.Get(path+"/config", &list)
	if problem, ok := errors.AsType[*gateway.Problem](err); ok && problem.Status == http.StatusNotImplemented {
		p.Missing, err = problem.Detail, nil
	}
	p.Values = list.Values
	return err
}

// stderr adds the last lines of standard error.
func (p *serverPage) stderr(r *page.Request, path string, add func(page.Fragment)) error {
	var list struct{ Lines []Line }
	if err := r.Get(fmt.Sprintf("%s/stderr?limit=%d", path, maxLines), &list); err != nil {
		return err
	}
	p.Lines = list.Lines
	add(page.Fragment{ID: "stderr-count", Body: countPart(p)})
	for i := range p.Lines {
		l := &p.Lines[i]
		add(page.Fragment{ID: l.Element(), Body: linePart(l), In: "lines", Place: page.Append,
			Version: strconv.FormatUint(l.Number, 10)})
	}
	return nil
}
