// Package host is for agents and gateways: programs that use several MCP servers.
//
// [Open] reads the servers of a configuration, which package
// [github.com/patchbay-mcp/patchbay/host/config] has loaded. It starts a server when a request needs
// it. [Host.For] returns the [View] of a caller: everything that the caller may use, under names that
// are unique among the servers. A View is an [mcp.Handler], so that every transport can serve it, and
// every client use it:
//
//	h, err := host.Open(ctx, file, nil)
//	client, err := mcp.Connect(ctx, mcp.InMemory(h.For(&policy.Caller{})), nil)
//
// Callers and servers may use different revisions of the protocol. Questions of a server during a
// request (elicitation, sampling, roots) go to the caller of this request, and to no other.
//
// An agent uses [Host.Tools] and [Host.Call], which asks the user before each call; see
// [Options.Consent].
//
// In this package, an upstream is a configured server, an instance is one connection to it, and a
// caller is the party that a request is made for.
package host
