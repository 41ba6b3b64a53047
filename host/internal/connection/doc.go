// Package connection makes, uses and ends single connections of a host to its servers.
//
// A [Conn] is a connection to a server, from dialing to close. For a stdio server it owns the
// process. A Conn counts its requests and knows what keeps it busy, but contains no rules about
// callers or configurations: its owner decides when a connection begins, replaces another
// connection or ends.
//
// A Conn contains a single lock, which it must not hold while it calls its owner: [Options.Notify]
// reports changes, and the owner answers by calling methods of the Conn, usually under its own
// lock.
package connection
