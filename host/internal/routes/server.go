// Package routes is the side of a caller: the merged lists of all its servers, the names and URIs of
// their items, and the way from a name or a URI back to its server.
//
// A [Table] holds the merged lists of a caller, as [Snapshot] values that never change. The other types
// answer requests from them: [Table.List], [Table.Search], [Table.Find] and [URIs]. The package reads the
// lists and the settings of servers. It must not depend on connections, limits and approvals.
package routes

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Server is a configured server as a caller uses it. Servers must be comparable.
type Server interface {
	call.Pool
	// Entry returns the configuration of the server.
	Entry() *server.Server
	// Share returns the sharing mode of the server.
	Share() config.Share
	// Caller returns the caller for which the server's lists are read.
	Caller() *policy.Caller
	// Lists returns the lists that the server offers to the caller.
	Lists() *listing.Lists
	// Logins returns the credentials for the server.
	Logins() *login.Server
	// Restore restores the lists of an earlier connection, so that the server need not be started.
	Restore(ctx context.Context)
}

// Servers contains the servers of a caller in a configuration. It must not be changed.
type Servers struct {
	// Version identifies the configuration. Versions must be comparable.
	Version any
	// Settings contains the settings of the configuration.
	Settings *config.Settings
	// Single means that names and URIs are those of the only server, unchanged.
	Single bool
	// All contains the servers in the order of the file.
	All []Server
	// Logins means that some server requires its callers to log in, and Forwards that headers of the
	// caller are forwarded to some server.
	Logins, Forwards bool
}

// Named returns the server with a name, nil for an unknown name.
func (s *Servers) Named(name string) Server {
	for _, p := range s.All {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// TaskServer describes a server for tasks, as it was last connected.
func TaskServer(s Server) task.Server {
	about := s.Lists().About()
	return task.Server{Name: s.Name(), Revision: about.Revision, Capabilities: about.Capabilities,
		Shared: s.Share() == config.ShareShared}
}

// TaskForm returns the form in which a server runs tools as tasks.
func TaskForm(s Server) task.Form {
	about := TaskServer(s)
	return about.Form()
}
