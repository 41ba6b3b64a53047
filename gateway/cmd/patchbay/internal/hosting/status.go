package hosting

import (
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
)

// A GatewayStatus is the condition of a gateway, as far as it is printed.
type GatewayStatus struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	URL      string    `json:"url"`
	Profile  string    `json:"profile"`
	Pending  int       `json:"pending"`
	Attached int       `json:"attached"`
	Requests int       `json:"requests"`

	Processes    int    `json:"processes"`
	MaxProcesses int    `json:"maxProcesses"`
	ConfigError  string `json:"configError"`
	Quarantined  int    `json:"quarantined"`

	Replicas *gateway.Replicas `json:"replicas"` // nil without a shared store
}

// A ServerStatus is the condition of a server, as far as it is printed.
type ServerStatus struct {
	Name         string `json:"name"`
	State        string `json:"state"`
	Revision     string `json:"revision"`
	Requests     int    `json:"requests"`
	Error        string `json:"error"`
	RetryAfterMs int64  `json:"retryAfterMs"`
	Instances    []struct {
		Unenforced []string `json:"unenforced"`
	} `json:"instances"`
	Limits struct {
		Instances int `json:"instances"`
	} `json:"limits"`
}

// Unenforced returns the limits that the system does not enforce for at least one process, sorted.
func (s *ServerStatus) Unenforced() (names []string) {
	for _, i := range s.Instances {
		names = append(names, i.Unenforced...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
