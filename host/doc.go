// Package host is for programs that use many servers. It reads the configuration files in which people name them.
//
//	config, err := host.LoadConfig(".mcp.json")
//	server, err := config.Server("files")
//	server, err = server.Expand(os.LookupEnv)
//
// The form is the one that most clients share: a member mcpServers, or servers, that maps names to a command with
// arguments, or to a URL. Comments and trailing commas are taken. What is not understood is kept.
//
// Whoever writes such a file chooses what is run: starting a server from it is running code of its author's choice.
package host
