// Package upstream connects a host to the servers of its configuration.
//
// [Servers] holds the present [Set] of servers and supervises their connections. A [Server] is one
// configured server. Each of its pools holds the connections for one caller, or for all callers of a
// shared server; a server of the session era may need several connections, for different capabilities
// of clients. A [Conn] belongs to an instance, which connects when a request needs it, delays starts
// after failures, and replaces the connection after a change of the configuration.
//
// The package knows neither views nor policies: an [Environment] contains everything that it needs of
// its host.
//
// Locks: a server has one lock for its pools, instances and connections. It may hold the lock while it
// calls its lists or a connection, or takes the lock of Servers or of the host. A connection must not
// hold a lock while it calls its server.
package upstream
