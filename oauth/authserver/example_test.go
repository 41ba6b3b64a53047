package authserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// An HTTP server that is its own authorization server. Require protects one of its handlers.
func ExampleNew() {
	var site http.ServeMux
	host := httptest.NewServer(&site)
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
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := mcp.PrincipalFrom(r.Context())
		fmt.Fprintln(w, "hello", p.Subject, p.Scopes)
	})
	protected := oauth.Require(auth.Verifier(endpoint), auth.ResourceMetadata(endpoint), nil)(hello)
	site.Handle("/mcp", protected)
	site.Handle("/", auth)

	fmt.Println(call(endpoint, ""))
	fmt.Println(call(endpoint, machineToken(host.URL, secret)))
	// Output:
	// 401
	// 200 hello nightly [read]
}

func call(endpoint, token string) string {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, endpoint, nil)
	if err != nil {
		return err.Error()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode)
	}
	return fmt.Sprint(res.StatusCode, " ", readLine(res))
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

func readLine(res *http.Response) string {
	line, _ := bufio.NewReader(res.Body).ReadString('\n')
	return strings.TrimSpace(line)
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
