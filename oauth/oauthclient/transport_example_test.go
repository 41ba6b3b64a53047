package oauthclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// oauthclient.NewBrowser(nil) asks the user in a browser. Here the program plays the user.
func ExampleNewTransport() {
	server := newExampleServer()
	defer server.Close()
	endpoint := server.URL + "/mcp"
	authorizer := oauthclient.NewAuthorizer("http://127.0.0.1:7777/callback", func(_ context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
		page, err := url.Parse(login.URL)
		if err != nil {
			return nil, err
		}
		fmt.Println("the user logs in for the scope", page.Query().Get("scope"))
		return url.Values{"code": {"of-ann"}, "state": {login.State}}, nil
	})
	t := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{Authorizer: authorizer})
	defer t.CloseIdleConnections()
	client := &http.Client{Transport: t} // for mcphttp.TransportOptions
	for range 2 {
		res, err := client.Get(endpoint)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		fmt.Println("server:", string(text), err)
	}
	status, err := t.Status(context.Background())
	fmt.Println("scopes:", status.Scopes, err)
	// Output:
	// the user logs in for the scope read
	// server: hello <nil>
	// server: hello <nil>
	// scopes: [read] <nil>
}

func ExampleTransport_Token() {
	server := newExampleServer()
	defer server.Close()
	t := oauthclient.NewTransport(server.URL+"/mcp", nil) // without an Authorizer
	defer t.CloseIdleConnections()
	_, err := t.Token(context.Background())
	fmt.Println("login required:", errors.Is(err, oauthclient.ErrLoginRequired))
	// Output:
	// login required: true
}
