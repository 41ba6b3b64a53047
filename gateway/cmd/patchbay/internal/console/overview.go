package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/status"
)

// overviewEvery is how often the overview is rendered without an event: no event reports that a
// request begins.
const overviewEvery = 2 * time.Second

// overviewRoutes are the routes of the overview, the example of a screen.
func (c *Console) overviewRoutes() []*route {
	return []*route{
		{Path: "/", Role: RoleViewer, Title: "Overview", Key: "o", Order: 10, View: c.overview.view},
		{Path: "/servers/restart", Role: RoleOperator, Act: func(r *request) (*Outcome, error) {
			return c.overview.control(r, "restart", "Restarted")
		}},
		{Path: "/servers/stop", Role: RoleOperator, Act: func(r *request) (*Outcome, error) {
			return c.overview.control(r, "stop", "Stopped")
		}},
	}
}

// An overview shows the servers. It is safe for concurrent use.
type overview struct {
	console *Console

	mu    sync.Mutex // guards the fields below
	tools map[string]*toolNames
	loads int
}

// toolNames are the names of the tools of a server, while the server is in a state.
type toolNames struct {
	Names  []string
	Loaded bool
	Err    string
	epoch  string // identifies the connection that listed them
	load   int    // counts the lists
}

func newOverview(c *Console) *overview { return &overview{console: c, tools: map[string]*toolNames{}} }

// An overviewPage is the data of templates/overview.html.
type overviewPage struct {
	Status  gatewayStatus
	Servers []serverRow
	Role    Role
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

// A serverRow is a server of GET /servers, as far as it is shown.
type serverRow struct {
	Name      string       `json:"name"`
	State     status.State `json:"state"`
	Since     time.Time    `json:"since"`
	Revision  string       `json:"revision"`
	Requests  int          `json:"requests"`
	Starts    int          `json:"starts"`
	Error     string       `json:"error"`
	Exit      string       `json:"exit"`
	Instances []struct {
		PID int `json:"pid"`
	} `json:"instances"`

	ID    string // of the element
	Tools *toolNames
	Role  Role // of the person who sees it
}

// Kind returns the class of the state, which selects its colour and symbol.
func (s *serverRow) Kind() string {
	switch s.State {
	case status.Ready:
		return "ok"
	case status.Starting, status.Draining:
		return "busy"
	case status.Off, status.Stopped:
		return "idle"
	case status.Degraded, status.Auth, status.Quarantined:
		return "warn"
	}
	return "bad"
}

// Words returns the state in words.
func (s *serverRow) Words() string {
	switch s.State {
	case status.Off:
		return "not started"
	case status.Auth:
		return "login required"
	case status.Config:
		return "configuration error"
	case status.CrashLoop:
		return "crash loop"
	case status.Backoff:
		return "failed, retrying"
	}
	return string(s.State)
}

// Failed reports whether the doctor can help.
func (s *serverRow) Failed() bool { return s.Error != "" || s.Kind() == "bad" || s.Kind() == "warn" }

// Problem returns the last error without the words that each error of a host contains, or how the
// process ended.
func (s *serverRow) Problem() string {
	text := strings.TrimPrefix(cmp.Or(s.Error, s.Exit), fmt.Sprintf("server %q: ", s.Name))
	text, _, _ = strings.Cut(text, "; the request did not run")
	return text
}

// Processes returns the IDs of the processes, of which a server within the gateway or behind a URL has none.
func (s *serverRow) Processes() string {
	var ids []string
	for _, i := range s.Instances {
		if i.PID > 0 {
			ids = append(ids, strconv.Itoa(i.PID))
		}
	}
	return strings.Join(ids, ", ")
}

// version returns a text that changes with the row. It does not contain the tools, which may be 1,000.
func (s *serverRow) version() string {
	row := *s
	row.Tools = nil
	if s.Tools == nil {
		return fmt.Sprintf("%+v", row)
	}
	return fmt.Sprintf("%+v %d %t", row, s.Tools.load, s.Tools.Loaded)
}

func (o *overview) view(r *request) (*View, error) {
	p := &overviewPage{Role: r.role}
	var list struct {
		Servers []serverRow `json:"servers"`
	}
	if err := r.get("/status", &p.Status); err != nil {
		return nil, err
	}
	if err := r.get("/servers", &list); err != nil {
		return nil, err
	}
	p.Servers = list.Servers
	for i := range p.Servers {
		s := &p.Servers[i]
		s.ID, s.Role, s.Tools = "server-"+elementID(s.Name), r.role, o.toolsOf(s)
		p.Status.Total++
		switch s.Kind() {
		case "ok":
			p.Status.Ready++
		case "bad", "warn":
			p.Status.Failed++
		}
	}
	fragments := []Fragment{{ID: "summary", Part: "summary", Data: &p.Status}}
	for i := range p.Servers {
		s := &p.Servers[i]
		fragments = append(fragments, Fragment{ID: s.ID, Part: "server", Data: s, In: "servers", Place: PlaceAppend,
			Version: s.version()})
	}
	return &View{Template: "overview", Data: p, Fragments: fragments, Every: overviewEvery}, nil
}

// elementID returns a text without the characters that an id must not contain, different for
// different names.
func elementID(name string) string { return strings.ReplaceAll(url.PathEscape(name), "%", "_") }

// control restarts or stops the server that a form names.
func (o *overview) control(r *request, verb, done string) (*Outcome, error) {
	name := r.PostFormValue("server")
	if err := r.post("/servers/"+url.PathEscape(name)+":"+verb, nil, nil); err != nil {
		return nil, err
	}
	o.forget(name)
	o.console.Changed()
	return &Outcome{Location: "/", Message: done + " " + name + "."}, nil
}

// Limits of the tools that the overview lists for a server.
const (
	maxToolNames = 1000
	toolsTimeout = 20 * time.Second
)

// toolsOf returns the tools of a connected server, or nil. It loads them in the background, because
// a page must not wait for a server.
func (o *overview) toolsOf(s *serverRow) *toolNames {
	if s.State != status.Ready && s.State != status.Degraded {
		return nil
	}
	epoch := fmt.Sprint(s.Starts, s.Revision)
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tools[s.Name]
	if t != nil && t.epoch == epoch {
		return t
	}
	o.loads++
	t = &toolNames{epoch: epoch, load: o.loads}
	o.tools[s.Name] = t
	name := s.Name
	o.console.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, toolsTimeout)
		defer cancel()
		names, err := o.load(ctx, name)
		loaded := &toolNames{Names: names, Loaded: true, epoch: epoch, load: t.load}
		if err != nil {
			loaded.Err = errorText(err)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.tools[name] == t { // nobody has forgotten it
			o.tools[name] = loaded
			o.console.Changed()
		}
	})
	return t
}

// load lists the names of the tools of a server.
func (o *overview) load(ctx context.Context, server string) (names []string, err error) {
	r := &request{console: o.console, Request: (&http.Request{}).WithContext(ctx)}
	for cursor := ""; len(names) < maxToolNames; {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"nextCursor"`
		}
		q := url.Values{"server": {server}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		if err := r.get("/catalogue?"+q.Encode(), &page); err != nil {
			return names, err
		}
		for _, item := range page.Items {
			var tool struct{ Name string }
			if json.Unmarshal(item, &tool) == nil {
				names = append(names, tool.Name)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	return names, nil
}

// forget makes the overview list the tools of a server again, or of all servers for "".
func (o *overview) forget(server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.Collect(maps.Keys(o.tools)) {
		if server == "" || name == server {
			delete(o.tools, name)
		}
	}
}
