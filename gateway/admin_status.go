package gateway

import (
	"net/http"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// An adminStatus is the condition of a gateway, in JSON.
type adminStatus struct {
	Version  string         `json:"version,omitzero" jsonschema:"version of the program"`
	PID      int            `json:"pid" jsonschema:"process of the gateway"`
	Started  time.Time      `json:"started"`
	URL      string         `json:"url,omitzero" jsonschema:"where MCP is served over HTTP"`
	Profile  string         `json:"profile,omitzero" jsonschema:"the only profile that is served"`
	Profiles []string       `json:"profiles"`
	Servers  map[string]int `json:"servers" jsonschema:"number of servers by state"`
	Pending  int            `json:"pending" jsonschema:"requests that wait for approval"`
	Attached int            `json:"attached" jsonschema:"clients that use the gateway through its socket"`
	Readers  int            `json:"readers" jsonschema:"clients that read the events"`
	Requests int            `json:"requests" jsonschema:"requests to servers in progress"`

	Processes    int `json:"processes" jsonschema:"processes of servers that are commands"`
	MaxProcesses int `json:"maxProcesses" jsonschema:"most of these processes: the setting limits.processes"`

	ConfigError string `json:"configError,omitzero" jsonschema:"why the configuration files are not in force"`

	Replicas *Replicas `json:"replicas,omitzero" jsonschema:"processes of the gateway that share a store"`
}

// Replicas are the processes of a gateway that share a store.
type Replicas struct {
	// Processes is the number of processes, which includes this process.
	Processes int `json:"processes" jsonschema:"number of processes, with this process"`
	// Other lists the processes with another configuration.
	Other []Replica `json:"otherConfiguration,omitempty" jsonschema:"processes with another configuration"`
}

// A Replica is a process with another configuration than this process.
type Replica struct {
	// Name is the name of the machine and the address of the process.
	Name    string    `json:"name" jsonschema:"machine and address"`
	Started time.Time `json:"started"`
	// Since is when the configurations began to differ.
	Since time.Time `json:"since" jsonschema:"beginning of the difference"`
}

func statusRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/status", "Condition of the gateway", (*adminRequest).status),
		getRoute("/callers", "Callers that have sent requests, the last one first", (*adminRequest).callers),
		postRoute("/stop", "", "End the gateway: it answers the requests in progress first",
			(*adminRequest).stopGateway),
	}
}

func (r *adminRequest) status(*noQuery) (*adminStatus, error) {
	a, h := r.admin, r.host()
	s := &adminStatus{Version: a.opts.Version, PID: os.Getpid(), Started: a.started.UTC(), URL: a.opts.URL,
		Profile: a.gateway.opts.Profile, Profiles: append([]string{}, h.Operator().Profiles()...),
		Servers: map[string]int{}, Attached: a.attached.count(), Readers: int(a.readers.Load())}
	st := h.Stats()
	for state, n := range st.Servers {
		s.Servers[string(state)] = n
	}
	s.Requests, s.Processes, s.MaxProcesses = st.Requests, st.Processes, st.MaxProcesses
	if a.opts.ConfigError != nil {
		s.ConfigError = a.opts.ConfigError()
	}
	if a.opts.Replicas != nil {
		s.Replicas = a.opts.Replicas()
	}
	pending, err := h.Approvals().Pending(r.Context())
	s.Pending = len(pending)
	return s, err
}

// An accepted is the response of an operation that continues after it.
type accepted struct {
	Accepted bool `json:"accepted"`
}

func (r *adminRequest) stopGateway(*noBody) (*accepted, error) {
	if r.admin.opts.Stop == nil {
		return nil, unsupported("stopping")
	}
	r.admin.opts.Stop()
	return &accepted{true}, nil
}

func unsupported(what string) error {
	return problemf(http.StatusNotImplemented, "unsupported", "this gateway does not support %s", what)
}

// A callerList is a page of the callers.
type callerList struct {
	Callers []callerEntry `json:"callers"`
}

// A callerEntry describes a caller that sent requests.
type callerEntry struct {
	adminCaller
	Client   string    `json:"client,omitzero" jsonschema:"what its last client calls itself; not verified"`
	Requests uint64    `json:"requests"`
	Refused  uint64    `json:"refused" jsonschema:"requests that were not sent to their server"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`

	principal *mcp.Principal // of the last request; nil for the local user
}

func (r *adminRequest) callers(*noQuery) (*callerList, error) {
	return &callerList{r.admin.events.callerList()}, nil
}
