// Command protected is examples/calchttp with authorization: requests require an access token. Its
// argument is the issuer, the URL of the authorization server.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

type sum struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(ctx context.Context, in sum) (string, error) {
	who := mcp.PrincipalFrom(ctx)
	return fmt.Sprintf("%d, %s", in.A+in.B, who.Subject), nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: protected ISSUER")
	}
	issuer := os.Args[1]
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	const addr, path = "127.0.0.1:8080", "/mcp"
	protect := oauth.Require(oauth.NewJWTVerifier(issuer, nil), oauth.ResourceMetadata{
		Resource:             "http://" + addr + path,
		AuthorizationServers: []string{issuer},
	}, nil)
	log.Fatal(mcphttp.ListenAndServe(context.Background(), addr, path, mcphttp.NewHandler(s, nil), protect))
}
