package gateway

import (
	"reflect"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
)

// serverType returns the type of a server in JSON: its name, and the view of its status.
var serverType = sync.OnceValue(func() reflect.Type {
	fields := []reflect.StructField{{Name: "Name", Type: reflect.TypeFor[string](), Tag: `json:"name"`}}
	for _, f := range reflect.VisibleFields(viewOf(reflect.TypeFor[host.UpstreamStatus]()).to) {
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	return reflect.StructOf(fields)
})

// serverListType returns the type of a list of servers.
var serverListType = sync.OnceValue(func() reflect.Type {
	return reflect.StructOf([]reflect.StructField{
		{Name: "Servers", Type: reflect.SliceOf(serverType()), Tag: `json:"servers"`}})
})

// newServerJSON returns a server in JSON.
func newServerJSON(u *host.Upstream) reflect.Value {
	status := viewOf(reflect.TypeFor[host.UpstreamStatus]()).convert(reflect.ValueOf(u.Status()).Elem())
	server := reflect.New(serverType()).Elem()
	server.Field(0).SetString(u.Name())
	for i := range status.NumField() {
		server.Field(i + 1).Set(status.Field(i))
	}
	return server
}

func serverRoutes() []*adminRoute {
	list := getRoute("/servers", "Servers and their condition", (*adminRequest).servers)
	list.response = serverListType()
	one := getRoute("/servers/{name}", "Condition of a server", func(r *adminRequest, _ *noQuery) (*any, error) {
		return r.server(func(*host.Upstream) error { return nil })
	})
	restart := postRoute("/servers/{name}", "restart",
		"Connect to a server again, and wait until it is ready: it replaces the connection in use then",
		func(r *adminRequest, _ *noBody) (*any, error) {
			return r.server(func(u *host.Upstream) error { return u.Restart(r.Context()) })
		})
	restart.slow = true
	stop := postRoute("/servers/{name}", "stop", "End the connections to a server until it is restarted",
		func(r *adminRequest, _ *noBody) (*any, error) {
			return r.server(func(u *host.Upstream) error {
				u.Stop()
				return nil
			})
		})
	for _, route := range []*adminRoute{one, restart, stop} {
		route.response = serverType()
	}
	restart.audited, stop.audited = true, true
	return []*adminRoute{list, one, restart, stop, loginRoute(), logoutRoute(),
		getRoute("/servers/{name}/stderr", "Last lines that a server has written to its standard error",
			(*adminRequest).stderr)}
}

func (r *adminRequest) servers(*noQuery) (*any, error) {
	all := reflect.New(serverListType()).Elem()
	servers := reflect.MakeSlice(reflect.SliceOf(serverType()), 0, 0)
	for _, u := range r.host().Upstreams() {
		servers = reflect.Append(servers, newServerJSON(u))
	}
	all.Field(0).Set(servers)
	v := all.Interface()
	return &v, nil
}

// server does something with the server of the path, and returns its condition.
func (r *adminRequest) server(do func(*host.Upstream) error) (*any, error) {
	u, err := r.upstream()
	if err == nil {
		err = do(u)
	}
	if err != nil {
		return nil, err
	}
	v := newServerJSON(u).Interface()
	return &v, nil
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
