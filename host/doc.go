// Package host connects to the servers of a configuration, which package
// [github.com/patchbay-mcp/patchbay/host/config] reads.
package host
