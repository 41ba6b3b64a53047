// Package doctorpage is the screen of the web console that explains why a server does not connect.
package doctorpage

import (
	"context"
	"embed"
	"net/http"
	"net/url"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
)

// maxExamined bounds the kept examinations. The oldest is forgotten.
const maxExamined = 100

//go:embed templates
var templates embed.FS

// An Examine function checks the connection to a server, as [doctor.Run] does.
type Examine func(ctx context.Context, server string, o *doctor.Options) (*doctor.Report, error)

// doctors contains the examinations. It is safe for concurrent use.
type doctors struct {
	site    *page.Site
	examine Examine

	mu  sync.Mutex // guards the field below
	all []*examination
}

// An examination is the last run of the checks of a server. It is never changed: the next step
// replaces it.
type examination struct {
	Server  string
	Checks  []doctor.Check
	Running string // the check in progress; "" at the end
	Report  string // the text to copy; "" before the end
	Err     string
	Role    page.Role // of the person who sees it
}

// New returns the screen.
func New(site *page.Site, examine Examine) *page.Screen {
	d := &doctors{site: site, examine: examine}
	return &page.Screen{Templates: templates, Routes: []*page.Route{
		{Path: "/doctor", Role: page.RoleViewer, Title: "Doctor", View: d.view},
		{Path: "/doctor/run", Role: page.RoleOperator, Act: d.run},
	}}
}

func (d *doctors) view(r *page.Request) (*page.View, error) {
	server := r.URL.Query().Get("server")
	if err := servers.Check(r, server); err != nil {
		return nil, err
	}
	e := examination{Server: server}
	if last := d.last(server); last != nil {
		e = *last
	}
	e.Role = r.Role
	return &page.View{Title: "Doctor: " + server, Template: "doctor", Data: &e,
		Fragments: []page.Fragment{{ID: "examination", Part: "examination", Data: &e}}}, nil
}

func (d *doctors) last(server string) *examination {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.all {
		if e.Server == server {
			return e
		}
	}
	return nil
}

// run begins an examination, unless the server is being examined.
func (d *doctors) run(r *page.Request) (*page.Outcome, error) {
	server := r.PostFormValue("server")
	if err := servers.Check(r, server); err != nil {
		return nil, err
	}
	if last := d.last(server); last != nil && last.Running != "" {
		return nil, &gateway.Problem{Status: http.StatusConflict,
			Detail: "the checks of " + server + " are running already"}
	}
	e := examination{Server: server, Running: "first check"}
	d.set(e)
	d.site.Background(func(ctx context.Context) {
		report, err := d.examine(ctx, server, &doctor.Options{
			Begin: func(name, action string) { e.Running = name + ": " + action; d.set(e) },
			End:   func(c doctor.Check) { e.Checks = append(e.Checks[:len(e.Checks):len(e.Checks)], c); d.set(e) },
		})
		if e.Running = ""; err != nil {
			e.Err = page.ErrorText(err)
		} else {
			e.Report = report.Text()
		}
		d.set(e)
	})
	return &page.Outcome{Location: "/doctor?" + url.Values{"server": {server}}.Encode()}, nil
}

// set replaces the examination of a server.
func (d *doctors) set(e examination) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, old := range d.all {
		if old.Server == e.Server {
			d.all[i] = &e
			d.site.Changed()
			return
		}
	}
	d.all = append(d.all, &e)
	d.all = d.all[max(len(d.all)-maxExamined, 0):]
	d.site.Changed()
}
