// Package settings is the screen of the web console with the configuration: its files, the
// effective settings, edits, and the instructions for clients of the gateway.
package settings

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/kept"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
)

// New returns the screen. Only the local user, at a console on this machine, may add a command
// line: otherwise, anybody who may log in from another machine could run any program on this
// machine.
func New(remote bool) *page.Screen {
	s := &screen{remote: remote}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/settings", Role: page.RoleViewer, Title: "Settings", Key: "c", Order: 90, View: s.view},
		{Path: "/settings/check", Role: page.RoleOperator, Act: s.check},
		{Path: "/settings/save", Role: page.RoleOperator, Act: s.save},
		{Path: "/settings/reload", Role: page.RoleOperator, Act: s.reload},
	}}
}

// isRemote reports whether a request may come from another machine.
func (s *screen) isRemote(r *page.Request) bool { return s.remote || r.Principal != nil }

// A screen contains the edits that were not saved.
type screen struct {
	remote  bool
	drafts  kept.Store[draft]
	notices kept.Store[notice]
}

// A notice is the result of a reload, or of an edit that was saved.
type notice struct {
	Saved  *gateway.ConfigResult // nil for a reload
	Reload *reloaded             // nil for an edit
}

// A reloaded is the response of POST /reload.
type reloaded struct {
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
	Changed  []string `json:"changed"`
	Updated  []string `json:"updated"`
	Settings []string `json:"settings"`
	Restart  []string `json:"restart"`
}

// IsEmpty reports whether the files contain no changes.
func (r *reloaded) IsEmpty() bool {
	return len(r.Added)+len(r.Removed)+len(r.Changed)+len(r.Updated)+len(r.Settings)+len(r.Restart) == 0
}

// Lists returns the changes with their titles.
func (r *reloaded) Lists() []struct {
	Title string
	Names []string
} {
	return []struct {
		Title string
		Names []string
	}{{"Added servers", r.Added}, {"Removed servers", r.Removed}, {"Servers that connect again", r.Changed},
		{"Servers with other settings", r.Updated}, {"Changed settings", r.Settings},
		{"Settings that need a restart of the gateway", r.Restart}}
}

// A settingsPage is the data of settingsBody.
type settingsPage struct {
	Files    []gateway.ConfigFile
	Settings []setting
	Rejected string // why the files are not in force, or ""
	Edit     draft
	Path     string // of the file that can be edited, or ""
	Checked  bool   // the page shows the changes of Edit
	Notice   *notice
	Gone     bool // the result that the URL names is no longer kept
	Role     page.Role
	Clients  []string
	URL      string // at which clients use the gateway; "" if it does not listen
	// Fixed are the servers of a console that reads no configuration files; nil otherwise.
	Fixed []servers.Row
}

// IsBrief reports whether the page lists the files without their texts and settings.
func (p *settingsPage) IsBrief() bool { return len(p.Files) > 0 && p.Files[0].Version == "" }

// A setting is the effective value of a setting.
type setting struct {
	gateway.Setting
	IsDefault bool
}

// Text returns the value as it is shown: a text without its quotation marks.
func (s *setting) Text() string {
	var text string
	if json.Unmarshal(s.Value, &text) == nil && text != "" {
		return text
	}
	return string(s.Value)
}

func (s *screen) view(r *page.Request) (*page.View, error) {
	var now struct {
		Files    []gateway.ConfigFile `json:"files"`
		Settings []gateway.Setting    `json:"settings"`
	}
	err := r.Get("/config", &now)
	if problem, ok := errors.AsType[*gateway.Problem](err); ok && problem.Status == http.StatusNotImplemented {
		fixed, err := servers.List(r)
		return &page.View{Body: settingsBody(&settingsPage{Role: r.Role, Fixed: fixed})}, err
	}
	if err != nil {
		return nil, err
	}
	var status struct {
		URL         string `json:"url"`
		ConfigError string `json:"configError"`
	}
	if err := r.Get("/status", &status); err != nil {
		return nil, err
	}
	p := &settingsPage{Files: now.Files, Rejected: status.ConfigError, Role: r.Role,
		Clients: configs.Clients(), URL: status.URL}
	for _, x := range now.Settings {
		p.Settings = append(p.Settings, setting{x, x.Origin == gateway.OriginDefault})
	}
	for i := range p.Files {
		if f := &p.Files[i]; f.Editable {
			p.Path, p.Edit = f.Path, draft{Text: f.Text, Version: f.Version}
		}
	}
	q := r.URL.Query()
	if id := q.Get("draft"); id != "" {
		d, ok := s.drafts.Get(id)
		if p.Gone = !ok; ok {
			p.Edit, p.Checked = d, true
			p.Edit.ID = id
		}
	}
	if id := q.Get("done"); id != "" {
		if n, ok := s.notices.Get(id); ok {
			p.Notice = &n
		}
	}
	return &page.View{Body: settingsBody(p)}, nil
}

// reload reads the configuration files again.
func (s *screen) reload(r *page.Request) (*page.Outcome, error) {
	n := notice{Reload: &reloaded{}}
	if err := r.Post("/reload", nil, n.Reload); err != nil {
		return nil, err
	}
	location, err := page.Link("/settings", "done", s.notices.Add(n))
	return &page.Outcome{Location: location}, err
}

// put sends a text of the configuration file to the gateway.
func put(r *page.Request, d *draft, dryRun bool) (*gateway.ConfigResult, error) {
	res := &gateway.ConfigResult{}
	change := &gateway.ConfigChange{Text: d.Text, Version: d.Version, DryRun: dryRun}
	return res, r.Call(http.MethodPut, "/config", change, res)
}
