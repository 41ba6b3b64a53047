package console

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
)

// maxExamined bounds the kept examinations. The oldest is forgotten.
const maxExamined = 100

// doctors is the screen that explains why a server does not connect. It is safe for concurrent use.
type doctors struct {
	console *Console

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
	Role    Role // of the person who sees it
}

func (c *Console) doctorRoutes() []*route {
	if c.opts.Examine == nil {
		return nil
	}
	return []*route{
		{Path: "/doctor", Role: RoleViewer, Title: "Doctor", View: c.doctors.view},
		{Path: "/doctor/run", Role: RoleOperator, Act: c.doctors.run},
	}
}

func (d *doctors) view(r *request) (*View, error) {
	server := r.URL.Query().Get("server")
	if err := r.get("/servers/"+url.PathEscape(server), &struct{}{}); err != nil {
		return nil, err
	}
	e := examination{Server: server}
	if last := d.last(server); last != nil {
		e = *last
	}
	e.Role = r.role
	return &View{Title: "Doctor: " + server, Template: "doctor", Data: &e,
		Fragments: []Fragment{{ID: "examination", Part: "examination", Data: &e}}}, nil
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
func (d *doctors) run(r *request) (*Outcome, error) {
	server := r.PostFormValue("server")
	if err := r.get("/servers/"+url.PathEscape(server), &struct{}{}); err != nil {
		return nil, err
	}
	if last := d.last(server); last != nil && last.Running != "" {
		return nil, &gateway.Problem{Status: http.StatusConflict,
			Detail: "the checks of " + server + " are running already"}
	}
	e := examination{Server: server, Running: "first check"}
	d.set(e)
	d.console.background(func(ctx context.Context) {
		report, err := d.console.opts.Examine(ctx, server, &doctor.Options{
			Begin: func(name, action string) { e.Running = name + ": " + action; d.set(e) },
			End:   func(c doctor.Check) { e.Checks = append(e.Checks[:len(e.Checks):len(e.Checks)], c); d.set(e) },
		})
		if e.Running = ""; err != nil {
			e.Err = errorText(err)
		} else {
			e.Report = report.Text()
		}
		d.set(e)
	})
	return &Outcome{Location: "/doctor?" + url.Values{"server": {server}}.Encode()}, nil
}

// set replaces the examination of a server.
func (d *doctors) set(e examination) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, old := range d.all {
		if old.Server == e.Server {
			d.all[i] = &e
			d.console.Changed()
			return
		}
	}
	d.all = append(d.all, &e)
	d.all = d.all[max(len(d.all)-maxExamined, 0):]
	d.console.Changed()
}
