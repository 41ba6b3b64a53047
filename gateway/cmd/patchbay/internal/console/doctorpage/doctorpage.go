// Package doctorpage is the screen of the web console that explains why a server does not connect.
package doctorpage

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// maxExamined limits the stored examinations. A new examination replaces the oldest.
	maxExamined = 100
	// pause is the least time between two examinations of a server that begin without a click,
	// because each examination starts the command of the server again.
	pause = time.Minute
)

// An Examine function checks the connection to a server, as [doctor.Run] does.
type Examine func(ctx context.Context, server string, o *doctor.Options) (*doctor.Report, error)

// A Doctor contains the examinations. It is safe for concurrent use. A nil Doctor examines nothing.
type Doctor struct {
	site    *page.Site
	examine Examine

	mu  sync.Mutex // guards the field below
	all []*Examination
}

// An Examination is the last run of the checks of a server. It is immutable: each step of the run
// stores a new Examination.
type Examination struct {
	Server  string
	Checks  []doctor.Check
	Running string   // the check in progress; "" at the end
	Login   *url.URL // the login page that the local user must open, or nil
	Stderr  []string // the last lines of standard error of the command that is being started
	Report  string   // the text to copy; "" before the end
	Err     string
	Role    page.Role // of the person who reads the page
	Local   bool      // the person is the local user, whose browser receives the response of a login

	Began time.Time
}

// NeedsLogin reports whether the checks stopped because a user must log in.
func (e *Examination) NeedsLogin() bool {
	return slices.ContainsFunc(e.Checks, func(c doctor.Check) bool { return c.NeedsLogin })
}

// New returns a Doctor.
func New(site *page.Site, examine Examine) *Doctor { return &Doctor{site: site, examine: examine} }

// Screen returns the screen.
func (d *Doctor) Screen() *page.Screen {
	return &page.Screen{Routes: []*page.Route{
		{Path: "/doctor", Role: page.RoleViewer, AnyServer: true, Title: "Doctor", View: d.view},
		{Path: "/doctor/run", Role: page.RoleOperator, Act: d.run},
	}}
}

// Examination returns the examination of a server, as a person sees it, or nil for a server that does not fail. The
// visit of a person who reads the output of the server begins an examination.
func (d *Doctor) Examination(r *page.Request, s *servers.Row) *Examination {
	if d == nil || s == nil || s.Kind() != "bad" && s.State != status.Auth {
		return nil
	}
	e := d.seen(r, s.Name)
	if r.ReadsOutput(s.Name) && e.Running == "" && s.Since.After(e.Began) && time.Since(e.Began) > pause {
		d.begin(s.Name, false)
		e = d.seen(r, s.Name)
	}
	return e
}

// Fragment returns the fragment of a page with the examination.
func (e *Examination) Fragment() page.Fragment {
	return page.Fragment{ID: "examination", Body: e.Section()}
}

func (d *Doctor) view(r *page.Request) (*page.View, error) {
	server := r.URL.Query().Get("server")
	if err := servers.Check(r, server); err != nil {
		return nil, err
	}
	e := d.seen(r, server)
	return &page.View{Title: "Doctor: " + server, Body: doctorBody(e), Fragments: []page.Fragment{e.Fragment()}}, nil
}

// seen returns the last examination of a server as a person sees it. The observations contain standard error
// and the environment: only a person who reads the output of the server sees them.
func (d *Doctor) seen(r *page.Request, server string) *Examination {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := Examination{Server: server}
	if at := d.index(server); at >= 0 {
		e = *d.all[at]
	}
	if !r.ReadsOutput(server) {
		e.Report, e.Stderr, e.Checks = "", nil, slices.Clone(e.Checks)
		for i := range e.Checks {
			e.Checks[i].Seen = nil
		}
	}
	e.Role, e.Local = r.Role, r.Principal == nil
	if !e.Local || e.Role != page.RoleOperator {
		e.Login = nil // only the person who logs in may see the page
	}
	return &e
}

// index returns the place of the examination of a server, or -1. The caller holds the mutex.
func (d *Doctor) index(server string) int {
	return slices.IndexFunc(d.all, func(e *Examination) bool { return e.Server == server })
}

// run begins an examination, with a login if the form contains "login".
func (d *Doctor) run(r *page.Request) (*page.Outcome, error) {
	server, login := r.PostFormValue("server"), r.PostFormValue("login") != ""
	if err := servers.Check(r, server); err != nil {
		return nil, err
	}
	if login && r.Principal != nil {
		return nil, page.Problem(http.StatusForbidden, "",
			"the doctor logs only the local user in: log in on the page of the server")
	}
	if !d.begin(server, login) {
		return nil, page.Problem(http.StatusConflict, "", "the checks of %s are running already", server)
	}
	return &page.Outcome{Location: "/doctor?" + url.Values{"server": {server}}.Encode()}, nil
}

// begin begins an examination, unless the server is being examined.
func (d *Doctor) begin(server string, login bool) bool {
	d.mu.Lock()
	at := d.index(server)
	if at >= 0 && d.all[at].Running != "" {
		d.mu.Unlock()
		return false
	}
	if at >= 0 {
		d.all = slices.Delete(d.all, at, at+1)
	}
	d.all = append(d.all, &Examination{Server: server, Running: "first check", Began: time.Now()})
	d.all = d.all[max(len(d.all)-maxExamined, 0):]
	d.mu.Unlock()
	d.site.Changed()
	d.site.Background(func(ctx context.Context) {
		report, err := d.examine(ctx, server, &doctor.Options{Login: login,
			Begin: func(name, action string) {
				d.change(server, func(e *Examination) { e.Running = name + ": " + action })
			},
			Stderr: func(lines []string) { d.change(server, func(e *Examination) { e.Stderr = lines }) },
			End: func(c doctor.Check) {
				d.change(server, func(e *Examination) {
					e.Stderr = nil
					if e.Checks = append(slices.Clip(e.Checks), c); c.Name == "authorize" {
						e.Login = nil
					}
				})
			},
			Open: func(_ context.Context, address string) error {
				to, err := oauthclient.CheckPage(address)
				d.change(server, func(e *Examination) { e.Login = to })
				return err
			},
		})
		if login && err == nil && len(report.Failed()) == 0 { // the connections of the host lack the login
			err = d.site.Call(ctx, nil, http.MethodPost, "/servers/"+url.PathEscape(server)+":restart", nil, nil)
		}
		d.change(server, func(e *Examination) {
			if e.Running, e.Login, e.Stderr = "", nil, nil; err != nil {
				e.Err = page.ErrorText(err)
			}
			if report != nil {
				e.Report = report.Text()
			}
		})
	})
	return true
}

// change replaces the examination of a server, unless it was forgotten.
func (d *Doctor) change(server string, change func(e *Examination)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.index(server); at >= 0 {
		e := *d.all[at]
		change(&e)
		d.all[at] = &e
		d.site.Changed()
	}
}
