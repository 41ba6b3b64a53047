// Package overview is the first screen of the web console: the servers with their state. It is the
// example of a screen, see package page.
package overview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// overviewEvery is how often the overview is rendered without an event: no event reports that a
// request begins.
const overviewEvery = 2 * time.Second

// maxClipped is the maximum number of names of tools in the closed list of a server: a line shows
// fewer.
const maxClipped = 12

// New returns the screen.
func New(site *page.Site) *page.Screen {
	o := &overview{site: site, tools: map[toolsKey]*toolNames{}}
	return &page.Screen{Heard: o.heard, Routes: []*page.Route{
		{Path: "/", Role: page.RoleViewer, Title: "Overview", Key: "o", Order: 10, View: o.view},
		{Path: "/palette", Role: page.RoleViewer, Serve: o.palette},
		{Path: "/servers/restart", Role: page.RoleOperator, Act: func(r *page.Request) (*page.Outcome, error) {
			return o.control(r, "restart", "Restarted")
		}},
		{Path: "/servers/stop", Role: page.RoleOperator, Act: func(r *page.Request) (*page.Outcome, error) {
			return o.control(r, "stop", "Stopped")
		}},
	}}
}

// An overview shows the servers. It is safe for concurrent use.
type overview struct {
	site *page.Site

	mu    sync.Mutex // guards the fields below
	tools map[toolsKey]*toolNames
	loads int
}

// A toolsKey identifies the tools of a server that a person may use.
type toolsKey struct{ server, person string }

// maxTools bounds the lists that are held, of all persons. A list is loaded again when it is
// missing.
const maxTools = 10_000

// toolNames are the names of the tools of a server, while the server is in a state.
type toolNames struct {
	Names  []string
	Loaded bool
	Err    string
	epoch  string // identifies the connection that listed them
	load   int    // counts the lists
}

// count returns the number of tools in words.
func (t *toolNames) count() string {
	switch {
	case t == nil || t.Err != "":
		return "–"
	case !t.Loaded:
		return "…"
	}
	return strconv.Itoa(len(t.Names))
}

// An overviewPage is the data of overviewBody.
type overviewPage struct {
	Status  gatewayStatus
	Servers []serverRow
	Role    page.Role
}

// A gatewayStatus is the response of GET /status, as far as it is shown.
type gatewayStatus struct {
	Version      string         `json:"version"`
	URL          string         `json:"url"`
	Started      time.Time      `json:"started"`
	Servers      map[string]int `json:"servers"`
	Requests     int            `json:"requests"`
	Pending      int            `json:"pending"`
	Processes    int            `json:"processes"`
	MaxProcesses int            `json:"maxProcesses"`
	ConfigError  string         `json:"configError"`

	Ready, Failed, Total int // servers
}

// A serverRow is a server of the list.
type serverRow struct {
	servers.Row
	ID    string // of the element
	Tools *toolNames
	Role  page.Role // of the person who sees it
}

// version returns a text that changes with the row. It does not contain the tools, which may be
// 1,000.
func (s *serverRow) version() string {
	row := *s
	row.Tools = nil
	if s.Tools == nil {
		return fmt.Sprintf("%+v", row)
	}
	return fmt.Sprintf("%+v %d %t", row, s.Tools.load, s.Tools.Loaded)
}

func (o *overview) view(r *page.Request) (*page.View, error) {
	p := &overviewPage{Role: r.Role}
	if err := r.Get("/status", &p.Status); err != nil {
		return nil, err
	}
	rows, err := servers.List(r)
	if err != nil {
		return nil, err
	}
	p.Servers = make([]serverRow, len(rows))
	for i := range p.Servers {
		s := &p.Servers[i]
		*s = serverRow{Row: rows[i], ID: "server-" + page.ElementID(rows[i].Name), Role: r.Role,
			Tools: o.toolsOf(&rows[i], r.Principal)}
		p.Status.Total++
		switch s.Kind() {
		case "ok":
			p.Status.Ready++
		case "bad", "warn":
			p.Status.Failed++
		}
	}
	fragments := []page.Fragment{{ID: "summary", Body: summaryPart(&p.Status)}}
	for i := range p.Servers {
		s := &p.Servers[i]
		fragments = append(fragments, page.Fragment{ID: s.ID, Body: serverPart(s), In: "servers",
			Place: page.Append, Version: s.version()})
	}
	return &page.View{Body: overviewBody(p), Fragments: fragments, Every: overviewEvery}, nil
}

// control restarts or stops the server that a form names.
func (o *overview) control(r *page.Request, verb, done string) (*page.Outcome, error) {
	name := r.PostFormValue("server")
	if err := r.Post("/servers/"+url.PathEscape(name)+":"+verb, nil, nil); err != nil {
		return nil, err
	}
	o.forget(name)
	o.site.Changed()
	return &page.Outcome{Message: done + " " + name + "."}, nil
}

// Limits of the tools that the overview lists for a server.
const (
	maxToolNames = 1000
	toolsTimeout = 20 * time.Second
)

// toolsOf returns the tools of a connected server that a person may use, or nil. It loads them in
// the background, because a page must not wait for a server.
func (o *overview) toolsOf(s *servers.Row, person *mcp.Principal) *toolNames {
	if !s.IsConnected() {
		return nil
	}
	epoch := fmt.Sprint(s.Starts, s.Revision)
	o.mu.Lock()
	defer o.mu.Unlock()
	key := toolsKey{s.Name, page.Access(person)}
	t := o.tools[key]
	if t != nil && t.epoch == epoch {
		return t
	}
	o.loads++
	t = &toolNames{epoch: epoch, load: o.loads}
	if len(o.tools) >= maxTools {
		clear(o.tools)
	}
	o.tools[key] = t
	name := s.Name
	o.site.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
		defer cancel()
		names, err := o.load(ctx, name, person)
		loaded := &toolNames{Names: names, Loaded: true, epoch: epoch, load: t.load}
		if err != nil {
			loaded.Err = page.ErrorText(err)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.tools[key] == t { // nobody has forgotten it
			o.tools[key] = loaded
			o.site.Changed()
		}
	})
	return t
}

// load lists the names of the tools of a server that a person may use. A server that the person may
// not use has none.
func (o *overview) load(ctx context.Context, server string, person *mcp.Principal) (names []string, err error) {
	for cursor := ""; len(names) < maxToolNames; {
		var list struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"nextCursor"`
		}
		q := url.Values{"server": {server}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		err := o.site.Call(ctx, person, http.MethodGet, "/catalogue?"+q.Encode(), nil, &list)
		if p, ok := errors.AsType[*gateway.Problem](err); ok && p.Status == http.StatusNotFound {
			return nil, nil
		}
		if err != nil {
			return names, err
		}
		for _, item := range list.Items {
			var tool struct{ Name string }
			if json.Unmarshal(item, &tool) == nil {
				names = append(names, tool.Name)
			}
		}
		if cursor = list.NextCursor; cursor == "" {
			break
		}
	}
	return names, nil
}

// heard forgets the tools of a server that an event concerns.
func (o *overview) heard(e page.Event) {
	if e.Type != "call" {
		o.forget(e.Server)
	}
}

// forget makes the overview list the tools of a server again, or of all servers for "".
func (o *overview) forget(server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.tools, func(key toolsKey, _ *toolNames) bool { return server == "" || key.server == server })
}
