// Command login lists the tools of an MCP server that requires authorization, and opens a browser for
// the login. Its argument is the URL of the server, such as the URL that `patchbay serve --auth demo`
// prints.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: login URL")
	}
	if err := list(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func list(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	login := oauthclient.NewTransport(url, &oauthclient.TransportOptions{Authorizer: oauthclient.NewBrowser(nil)})
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: login},
	}), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(tool.Name, "-", tool.Description)
	}
	return nil
}
