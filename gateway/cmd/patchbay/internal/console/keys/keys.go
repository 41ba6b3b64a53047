// Package keys is the screen of the web console with the keys of a gateway.
package keys

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// patience bounds the request that finds out whether the gateway uses keys.
const patience = 5 * time.Second

// New returns the screen, or nil for a gateway without keys.
func New(site *page.Site) *page.Screen {
	ctx, cancel := context.WithTimeout(site.Context(), patience)
	defer cancel()
	var p *gateway.Problem
	err := site.Call(ctx, nil, http.MethodGet, "/keys", nil, nil)
	if errors.As(err, &p) && p.Status == http.StatusNotImplemented {
		return nil
	}
	return &page.Screen{Routes: []*page.Route{
		{Path: "/keys", Role: page.RoleViewer, Title: "Keys", Key: "k", Order: 65,
			View: func(r *page.Request) (*page.View, error) { return view(r, nil) }},
		{Path: "/keys", Role: page.RoleOperator, Title: "New key", Act: create},
		{Path: "/keys/revoke", Role: page.RoleOperator, Act: revoke},
	}}
}

// A keysPage is the data of keysBody.
type keysPage struct {
	Keys    []key `json:"keys"`
	Servers []struct {
		Name string `json:"name"`
	} `json:"servers"`

	Role page.Role
	Form form
}

// A key is a key of GET /keys.
type key struct {
	Name     string    `json:"name"`
	Subject  string    `json:"subject"`
	Profile  string    `json:"profile"`
	Servers  []string  `json:"servers"`
	Only     []string  `json:"only"`
	ReadOnly bool      `json:"readOnly"`
	Console  string    `json:"console"` // the role, or "" for none
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	Used     time.Time `json:"used"`

	CanRevoke bool
}

// Opens describes the servers and requests that the key grants.
func (k *key) Opens() string {
	all := []string{"all servers"}
	if len(k.Servers) > 0 {
		all[0] = strings.Join(k.Servers, ", ")
	}
	if k.Profile != "" {
		all = append(all, "profile "+k.Profile)
	}
	if len(k.Only) > 0 {
		only := []string{}
		for _, one := range kinds {
			if slices.Contains(k.Only, one.Value) {
				only = append(only, one.Text)
			}
		}
		all = append(all, "only "+strings.Join(only, ", "))
	}
	if k.ReadOnly {
		all = append(all, "read-only tools")
	}
	return strings.Join(all, "; ")
}

// Expired reports whether the key is no longer valid.
func (k *key) Expired() bool { return !k.Expires.IsZero() && !time.Now().Before(k.Expires) }

// A kind is a kind of requests that a key may be limited to.
type kind struct{ Value, Text string }

var kinds = []kind{{"call", "tools"}, {"get", "prompts"}, {"read", "resources"}}

// roles are the roles that a key may grant in the console.
var roles = []kind{{"", "no access"}, {"viewer", "viewer: sees the screens without the data of others"},
	{"operator", "operator: also sees all traffic, decides, runs tools and edits the configuration"}}

// A period is a choice of the time for which a key is valid.
type period struct {
	Value, Text string
	valid       time.Duration // 0 for ever
}

const (
	day = 24 * time.Hour
	// defaultPeriod is as for "patchbay gateway keys new": an unused key does not stay valid.
	defaultPeriod = "90d"
)

var periods = []period{{"12h", "12 hours", 12 * time.Hour}, {"7d", "7 days", 7 * day}, {"30d", "30 days", 30 * day},
	{defaultPeriod, "90 days", 90 * day}, {"365d", "a year", 365 * day}, {"never", "never", 0}}

// A form contains the fields of a new key, as a person filled them in.
type form struct {
	Name, Subject, Expires string
	Console                string // the role
	Servers, Only          []string
	ReadOnly               bool
	Error                  string
	Kinds                  []kind
	Periods                []period
	Roles                  []kind
}

// view shows the keys. failed is the form of a key that was not created, or nil.
func view(r *page.Request, failed *form) (*page.View, error) {
	p := &keysPage{Role: r.Role, Form: form{Expires: defaultPeriod}}
	if failed != nil {
		p.Form = *failed
	}
	p.Form.Kinds, p.Form.Periods, p.Form.Roles = kinds, periods, roles
	if r.Principal != nil { // the gateway refuses a role from a remote person
		p.Form.Roles = roles[:1]
	}
	if err := r.Get("/keys", p); err != nil {
		return nil, err
	}
	if err := r.Get("/servers", p); err != nil {
		return nil, err
	}
	for i := range p.Keys {
		p.Keys[i].CanRevoke = r.Role == page.RoleOperator
	}
	return &page.View{Body: keysBody(p)}, nil
}

// A newKey is the response of POST /keys. The console shows it once and does not store it.
type newKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// create creates the key that a form describes, and returns the only page with its secret. A page
// that is loaded again sends the form again, which the gateway refuses: the key exists.
func create(r *page.Request) (*page.Outcome, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &gateway.Problem{Status: http.StatusBadRequest, Code: "invalid_form", Detail: err.Error()}
	}
	v := r.PostForm
	f := &form{Name: strings.TrimSpace(v.Get("name")), Subject: strings.TrimSpace(v.Get("subject")),
		Expires: v.Get("expires"), Console: v.Get("console"), Servers: v["server"], Only: v["only"],
		ReadOnly: v.Get("readonly") != ""}
	body := map[string]any{"name": f.Name, "readOnly": f.ReadOnly}
	if f.Subject != "" {
		body["subject"] = f.Subject
	}
	if f.Console != "" {
		body["console"] = f.Console
	}
	if len(f.Servers) > 0 {
		body["servers"] = f.Servers
	}
	if len(f.Only) > 0 && len(f.Only) < len(kinds) {
		body["only"] = f.Only
	}
	at := slices.IndexFunc(periods, func(p period) bool { return p.Value == cmp.Or(f.Expires, defaultPeriod) })
	if at < 0 {
		return nil, &gateway.Problem{Status: http.StatusBadRequest, Code: "invalid_form", Detail: "unknown period"}
	}
	if valid := periods[at].valid; valid > 0 {
		body["expires"] = time.Now().Add(valid).UTC().Format(time.RFC3339)
	}
	var made newKey
	err := r.Post("/keys", body, &made)
	var p *gateway.Problem
	if errors.As(err, &p) && p.Status < http.StatusInternalServerError {
		f.Error = page.ErrorText(err)
		again, err := view(r, f)
		return &page.Outcome{View: again, Status: p.Status}, err
	}
	if err != nil {
		return nil, err
	}
	return &page.Outcome{View: &page.View{Title: "New key", Body: createdBody(&made)}}, nil
}

// revoke revokes the key that a form names.
func revoke(r *page.Request) (*page.Outcome, error) {
	name := r.PostFormValue("key")
	if err := r.Post("/keys/"+url.PathEscape(name)+":revoke", nil, nil); err != nil {
		return nil, err
	}
	return &page.Outcome{Location: "/keys", Message: "Revoked " + name + "."}, nil
}
