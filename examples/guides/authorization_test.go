package guides

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A program that acts for itself authenticates with a secret. This example needs a server, so it is compiled only.
func Example_clientCredentials() {
	const url = "https://mcp.example.com/mcp"
	login := oauthclient.NewTransport(url, &oauthclient.TransportOptions{
		Grant: oauthclient.NewClientCredentialsGrant(),
		Client: oauthclient.Identity{
			ID: "nightly", Secret: os.Getenv("CLIENT_SECRET"), Issuer: "https://auth.example.com",
		},
	})
	c, err := mcp.Connect(context.Background(), mcphttp.NewTransport(url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: login},
	}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.ServerInfo().Name)
}

// A static token needs no login.
func Example_staticToken() {
	c, err := mcp.Connect(context.Background(), mcphttp.NewTransport("http://127.0.0.1:8080/mcp", &mcphttp.TransportOptions{
		Header: http.Header{"Authorization": {"Bearer " + os.Getenv("MCP_TOKEN")}},
	}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.ServerInfo().Name)
}
