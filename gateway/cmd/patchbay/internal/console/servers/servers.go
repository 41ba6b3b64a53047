// Package servers contains the rows of the servers that several screens of the web console show.
package servers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// A Row is a server of GET /servers, as far as pages show it.
type Row struct {
	Name      string       `json:"name"`
	State     status.State `json:"state"`
	Since     time.Time    `json:"since"`
	Revision  string       `json:"revision"`
	Requests  int          `json:"requests"`
	Starts    int          `json:"starts"`
	Error     string       `json:"error"`
	Exit      string       `json:"exit"`
	Instances []Instance   `json:"instances"`
}

// An Instance is a connection to the server.
type Instance struct {
	status.Instance
	Caller *callerName `json:"caller"`
}

type callerName struct{ Subject, Issuer, Profile string }

// For returns the caller that the instance serves.
func (i *Instance) For() string {
	switch c := i.Caller; {
	case c == nil:
		return "all"
	case c.Subject == "":
		return "the local user"
	default:
		return strings.TrimSpace(c.Subject + " " + c.Issuer)
	}
}

// List returns all servers.
func List(r *page.Request) ([]Row, error) {
	var list struct {
		Servers []Row `json:"servers"`
	}
	err := r.Get("/servers", &list)
	return list.Servers, err
}

// Opened returns a function that reports whether a person may read an exchange with a server. An exchange
// without a server may contain the lists of all servers, so it requires that the person may use all servers.
// The local user may read all exchanges.
func Opened(r *page.Request) func(server string) bool {
	if r.Principal == nil {
		return func(string) bool { return true }
	}
	list, err := List(r)
	opened := map[string]bool{"": err == nil}
	for i := range list {
		opened[list[i].Name] = r.Opens(list[i].Name)
		opened[""] = opened[""] && opened[list[i].Name]
	}
	return func(server string) bool { return opened[server] }
}

// Check returns a problem unless there is a server with a name.
func Check(r *page.Request, name string) error {
	if name == "" {
		return Unknown(name)
	}
	return r.Get("/servers/"+url.PathEscape(name), nil)
}

// defaultStartTimeout is the default of the setting startTimeout.
const defaultStartTimeout = 2 * time.Minute

// StartTimeout returns how long a server may take to start: the setting startTimeout in force.
func StartTimeout(ctx context.Context, site *page.Site, name string) time.Duration {
	var list struct{ Values []gateway.ServerValue }
	err := site.Call(ctx, nil, http.MethodGet, "/servers/"+url.PathEscape(name)+"/config", nil, &list)
	if err != nil { // the gateway has no configuration
		return defaultStartTimeout
	}
	for _, v := range list.Values {
		if d, err := time.ParseDuration(v.Value); v.Name == "startTimeout" && err == nil && d > 0 {
			return d
		}
	}
	return defaultStartTimeout
}

// Unknown returns the error for the name of an unknown server.
func Unknown(name string) error {
	return page.Problem(http.StatusNotFound, "unknown_server", "there is no server %q", name)
}

// StartVerb returns the text of the button that starts the server.
func (s *Row) StartVerb() string {
	if kind := s.Kind(); kind == "idle" || kind == "bad" {
		return "Start"
	}
	return "Restart"
}

// Kind returns the class of the state, which selects its colour and symbol.
func (s *Row) Kind() string {
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
func (s *Row) Words() string {
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

// IsConnected reports whether the server answers requests.
func (s *Row) IsConnected() bool { return s.State == status.Ready || s.State == status.Degraded }

// Failed reports whether the doctor can help.
func (s *Row) Failed() bool { return s.Error != "" || s.Kind() == "bad" || s.Kind() == "warn" }

// Problem returns the last error without the words that each error of a host contains, or how the
// process ended.
func (s *Row) Problem() string {
	text := strings.TrimPrefix(cmp.Or(s.Error, s.Exit), fmt.Sprintf("server %q: ", s.Name))
	text, _, _ = strings.Cut(text, "; the request did not run")
	return text
}

// Processes returns the IDs of the processes, or "" for a server within the gateway or behind a
// URL.
func (s *Row) Processes() string {
	var ids []string
	for _, i := range s.Instances {
		if i.PID > 0 {
			ids = append(ids, strconv.Itoa(i.PID))
		}
	}
	return strings.Join(ids, ", ")
}
