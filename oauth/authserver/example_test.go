package authserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// An MCP server that is its own authorization server.
func ExampleNew() {
	mux := http.NewServeMux()
	host := httptest.NewServer(mux)
	defer host.Close()
	endpoint := host.URL + "/mcp"

	secret, hash := authserver.NewClientSecret()
	auth, err := authserver.New(&authserver.Options{
		Issuer: host.URL,
		Resources: []authserver.Resource{{URL: endpoint, Scopes: []authserver.Scope{{Name: "read",
			Description: "Read notes"}}}},
		Clients: []authserver.Client{{ID: "nightly", SecretHash: hash}},
		Login: authserver.LoginFunc(func(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			l.Finish(w, r, authserver.Subject{ID: "the-only-user"})
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := mcp.NewServer("notes", "1.0.0", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		p := mcp.PrincipalFrom(ctx)
		return fmt.Sprint(p.Subject, " ", p.Scopes), nil
	})
	protect := oauth.Require(auth.Verifier(endpoint), auth.ResourceMetadata(endpoint), nil)
	mux.Handle("/mcp", protect(mcphttp.NewHandler(server, nil)))
	mux.Handle("/", auth)

	fmt.Println(whoami(endpoint, "none"))
	fmt.Println(whoami(endpoint, machineToken(host.URL, secret)))
	// Output:
	// 401
	// nightly [read]
}

// whoami calls the tool with a token, and returns its result or the HTTP status of the refusal.
func whoami(endpoint, token string) string {
	ctx := context.Background()
	client := &http.Client{Transport: bearer(token)}
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{Client: client}), nil)
	if refused, ok := errors.AsType[*mcphttp.StatusError](err); ok {
		return fmt.Sprint(refused.StatusCode)
	}
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	text, err := mcp.CallTool[string](ctx, c, "whoami", nil)
	if err != nil {
		return err.Error()
	}
	return text
}

// A bearer is a round tripper that sends itself as the access token.
type bearer string

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(req)
}

func machineToken(issuer, secret string) string {
	res, err := http.PostForm(issuer+"/token", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {"nightly"}, "client_secret": {secret},
	})
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	return tokenIn(res)
}

func tokenIn(res *http.Response) string {
	var body struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return err.Error()
	}
	return body.Token
}
