// Command gateway serves the tools of several servers. In "gateway calc shop", the public name of the
// tool add of the server calc is calc.add.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type gateway map[string]*mcp.Client // by the commands of the servers, which are in the PATH

func (g gateway) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case "server/discover":
		return &mcp.DiscoverResult{SupportedVersions: []string{req.Revision()},
			Capabilities: mcp.ServerCapabilities{Tools: &mcp.ListCapability{}}}, nil
	case "tools/list":
		all := &mcp.ListToolsResult{Tools: []*mcp.Tool{}}
		for server, c := range g {
			for tool, err := range c.Tools(ctx) {
				if err != nil {
					return nil, err
				}
				named := *tool
				named.Name = server + "." + tool.Name
				all.Tools = append(all.Tools, &named)
			}
		}
		return all, nil
	case "tools/call":
		params, name := map[string]json.RawMessage{}, "" // an invalid name is that of no server
		_, _ = json.Unmarshal(req.Params, &params), json.Unmarshal(params["name"], &name)
		if server, tool, _ := strings.Cut(name, "."); g[server] != nil {
			params["name"], _ = json.Marshal(tool)
			req.Params, _ = json.Marshal(params)
			return mcp.Forward(g[server]).ServeMCP(ctx, req)
		}
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown tool %q", name)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
}

func main() {
	ctx, g := context.Background(), gateway{}
	for _, command := range os.Args[1:] {
		c, err := mcp.Connect(ctx, mcp.Command(command), &mcp.ClientOptions{ForwardInput: true})
		if err != nil {
			log.Fatal(err)
		}
		g[command] = c // the server ends with this process, which closes its standard input
	}
	if err := mcp.Serve(ctx, g, mcp.Stdio(), nil); err != nil {
		log.Print(err)
	}
}
