package target

import (
	"errors"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (

	// RunningName is the TARGET of the running gateway.
	RunningName = "@"
)

// HostName is the TARGET of all configured servers.
const HostName = "@host"

// A HostTarget is the TARGET of all configured servers: a host in this process, or the running gateway.
type HostTarget struct {
	Open         func() mcp.SessionTransport
	ReportFailed func() // prints which servers have failed; nil for the running gateway
}

// errHostFlags is returned for flags that apply to a single server.
var errHostFlags = errors.New("--header, --env and --cwd are for a single server: the configuration " +
	"specifies them for the servers of @host and @")
