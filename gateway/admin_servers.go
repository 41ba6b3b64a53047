package gateway

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// A serverList contains the servers of the host.
type serverList struct {
	Servers []serverEntry `json:"servers"`
}

// A serverEntry is the condition of a server. See [status.Server].
type serverEntry struct {
	Name         string          `json:"name"`
	State        status.State    `json:"state"`
	Since        time.Time       `json:"since,omitzero"`
	Revision     string          `json:"revision,omitzero"`
	Session      bool            `json:"session"`
	Requests     int             `json:"requests"`
	Suspended    int             `json:"suspended"`
	Starts       int             `json:"starts"`
	Error        string          `json:"error,omitzero"`
	Exit         string          `json:"exit,omitzero"`
	RetryAfterMs int64           `json:"retryAfterMs,omitzero"`
	Limits       limitsEntry     `json:"limits,omitzero"`
	Instances    []instanceEntry `json:"instances"`
}

// A limitsEntry contains the figures of the limits of requests. See [status.Limits].
type limitsEntry struct {
	Running      int               `json:"running"`
	Queued       int               `json:"queued"`
	Concurrency  int               `json:"concurrency"`
	Queue        int               `json:"queue"`
	Instances    int               `json:"instances"`
	Breaker      status.Breaker    `json:"breaker,omitzero"`
	RetryAfterMs int64             `json:"retryAfterMs,omitzero"`
	Refused      map[string]uint64 `json:"refused,omitzero"`
}

// An instanceEntry is the condition of a connection. See [status.Instance].
type instanceEntry struct {
	status.Instance
	Caller *adminCaller `json:"caller,omitzero"`
}

func newServerEntry(u *host.Upstream) *serverEntry {
	s := u.Status()
	e := &serverEntry{
		Name: u.Name(), State: s.State, Since: s.Since, Revision: s.Revision, Session: s.Session,
		Requests: s.Requests, Suspended: s.Suspended, Starts: s.Starts, RetryAfterMs: s.RetryAfter.Milliseconds(),
		Limits:    newLimitsEntry(&s.Limits),
		Instances: []instanceEntry{},
	}
	if s.Err != nil {
		e.Error = cut(s.Err.Error(), maxProblem)
	}
	if s.Exit != nil {
		e.Exit = cut(s.Exit.Error(), maxProblem)
	}
	for _, i := range s.Instances {
		e.Instances = append(e.Instances, instanceEntry{i, newAdminCaller(i.Caller)})
	}
	return e
}

// An adminCaller is a caller in JSON.
type adminCaller struct {
	Subject string `json:"subject,omitzero" jsonschema:"of the principal; absent for the local user"`
	Issuer  string `json:"issuer,omitzero"`
	Profile string `json:"profile,omitzero"`
	Server  string `json:"server,omitzero"`
}

func newAdminCaller(c *policy.Caller) *adminCaller {
	if c == nil {
		return nil
	}
	a := &adminCaller{Profile: c.Profile, Server: c.Server}
	if c.Principal != nil {
		a.Subject, a.Issuer = c.Principal.Subject, c.Principal.Issuer
	}
	return a
}

func serverRoutes() []*adminRoute {
	list := getRoute("/servers", "Servers and their condition", (*adminRequest).servers)
	one := getRoute("/servers/{name}", "Condition of a server",
		func(r *adminRequest, _ *noQuery) (*serverEntry, error) {
			return r.server(func(*host.Upstream) error { return nil })
		})
	restart := postRoute("/servers/{name}", "restart",
		"Connect to a server again, and wait until it is ready: it replaces the connection in use then",
		func(r *adminRequest, _ *noBody) (*serverEntry, error) {
			return r.server(func(u *host.Upstream) error { return u.Restart(r.Context()) })
		})
	restart.slow = true
	stop := postRoute("/servers/{name}", "stop", "End the connections to a server until it is restarted",
		func(r *adminRequest, _ *noBody) (*serverEntry, error) {
			return r.server(func(u *host.Upstream) error {
				u.Stop()
				return nil
			})
		})
	restart.audited, stop.audited = true, true
	return []*adminRoute{list, one, restart, stop, loginRoute(), logoutRoute(),
		getRoute("/servers/{name}/config", "Configuration of a server, without secrets", (*adminRequest).serverConfig),
		getRoute("/servers/{name}/stderr", "Last lines that a server has written to its standard error",
			(*adminRequest).stderr)}
}

func (r *adminRequest) servers(*noQuery) (*serverList, error) {
	all := &serverList{Servers: []serverEntry{}}
	for _, u := range r.host().Upstreams() {
		all.Servers = append(all.Servers, *newServerEntry(u))
	}
	return all, nil
}

// server does something with the server of the path, and returns its condition.
func (r *adminRequest) server(do func(*host.Upstream) error) (*serverEntry, error) {
	u, err := r.upstream()
	if err == nil {
		err = do(u)
	}
	if err != nil {
		return nil, err
	}
	return newServerEntry(u), nil
}

// A ServerValue is a value of the configuration of a server.
type ServerValue struct {
	// Name is the path of the value in the entry of the server or in its settings, such as
	// "env.TOKEN".
	Name string `json:"name" jsonschema:"such as env.TOKEN"`
	// Value is the value as the file contains it, with a mask in place of a text that may be
	// secret.
	Value string `json:"value" jsonschema:"with a mask in place of a text that may be secret"`
	// Origin is the file, "command line" or "default".
	Origin string `json:"origin" jsonschema:"file, command line or default"`
}

// A serverValues lists the configuration of a server.
type serverValues struct {
	Values []ServerValue `json:"values"`
}

func (r *adminRequest) serverConfig(*noQuery) (*serverValues, error) {
	u, err := r.upstream()
	if err != nil {
		return nil, err
	}
	if r.admin.opts.ServerConfig == nil {
		return nil, unsupported("showing the configuration of a server")
	}
	values, err := r.admin.opts.ServerConfig(r.Context(), u.Name())
	return &serverValues{append([]ServerValue{}, values...)}, err
}

// A stderrQuery selects lines of standard error.
type stderrQuery struct {
	After uint64 `json:"after,omitzero" jsonschema:"only lines after the one with this number"`
	Limit int    `json:"limit,omitzero" jsonschema:"only the last lines,minimum=1,maximum=1000"`
}

// A stderrList contains lines of standard error.
type stderrList struct {
	Lines []stderrEntry `json:"lines" jsonschema:"the oldest first"`
}

// A stderrEntry is a line of standard error.
type stderrEntry struct {
	Number   uint64    `json:"number" jsonschema:"of the line, from 1"`
	Time     time.Time `json:"time"`
	Instance string    `json:"instance" jsonschema:"id of the instance that has written it"`
	Text     string    `json:"text" jsonschema:"with special characters escaped; it comes from the server"`
}

func (r *adminRequest) stderr(q *stderrQuery) (*stderrList, error) {
	u, err := r.upstream()
	if err != nil {
		return nil, err
	}
	res := &stderrList{Lines: []stderrEntry{}}
	for _, l := range u.Stderr() {
		if l.Number > q.After {
			res.Lines = append(res.Lines, stderrEntry{l.Number, l.Time.UTC(), l.Instance, l.Text})
		}
	}
	res.Lines = res.Lines[max(0, len(res.Lines)-limitOr(q.Limit)):]
	return res, nil
}
