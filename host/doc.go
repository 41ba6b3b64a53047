// Package host is for programs that connect to several servers. It reads their configuration files.
//
//	config, err := host.LoadConfig(".mcp.json")
//	server, err := config.Server("files")
//	server, err = server.Expand(os.LookupEnv)
//
// The format is the one that most clients share: a member mcpServers, or servers, maps names to
// commands with arguments, or to URLs. Comments and trailing commas are allowed. Unknown members
// are kept.
//
// A configuration file chooses which commands run: starting a server from it runs code of the
// file's author.
package host
