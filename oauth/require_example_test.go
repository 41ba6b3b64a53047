package oauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Require protects a handler and tells clients without a token where to get one.
func ExampleRequire() {
	server := mcp.NewServer("demo", "1.0.0", nil)
	protect := oauth.Require(
		oauth.NewJWTVerifier("https://auth.example.com", nil),
		oauth.ResourceMetadata{
			Resource:             "https://mcp.example.com/mcp",
			AuthorizationServers: []string{"https://auth.example.com"},
		},
		&oauth.RequireOptions{Scopes: oauth.AllOf("mcp:use")},
	)
	handler := protect(mcphttp.NewHandler(server, nil))

	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("POST", "/mcp", nil))
	fmt.Println(answer.Code)
	for _, challenge := range oauth.ParseChallenges(answer.Header()) {
		fmt.Println(challenge)
	}

	answer = httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/.well-known/oauth-protected-resource/mcp", nil))
	fmt.Println(answer.Code, answer.Body)
	// Output:
	// 401
	// Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp:use"
	// 200 {"resource":"https://mcp.example.com/mcp","authorization_servers":["https://auth.example.com"],"bearer_methods_supported":["header"]}
}

// Without JWTOptions.JWKS, the keys are found through the issuer's metadata.
func ExampleNewJWTVerifier() {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	keys, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1"}}})
	verifier := oauth.NewJWTVerifier("https://auth.example.com", &oauth.JWTOptions{JWKS: keys})

	signer, _ := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}},
		(&jose.SignerOptions{}).WithType("at+jwt"))
	token, _ := jwt.Signed(signer).Claims(map[string]any{
		"iss": "https://auth.example.com", "sub": "ann", "aud": "https://mcp.example.com/mcp",
		"scope": "read write", "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize()

	found, err := verifier.Verify(context.Background(), token)
	fmt.Println(found.Subject, found.Scopes, err)
	_, err = verifier.Verify(context.Background(), token[:len(token)-10])
	fmt.Println(err)
	// Output:
	// ann [read write] <nil>
	// oauth: invalid token: the signature does not match any key of the issuer
}

// A server whose users have configured tokens needs no authorization server.
func ExampleNewStaticVerifier() {
	verifier, err := oauth.NewStaticVerifier(oauth.StaticToken{
		SHA256:  "c683d4165806d3e6f5b7af9d5b6b30b9b26e2a7b6a0a5f6f5a4b5a40ac5f2d5f",
		Subject: "ann", Scopes: []string{"read"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	protect := oauth.Require(verifier, oauth.ResourceMetadata{Resource: "http://localhost:8080/mcp"}, nil)
	handler := protect(http.NotFoundHandler())

	request := httptest.NewRequest("POST", "/mcp", nil)
	request.Header.Set("Authorization", "Bearer an-unknown-token")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	fmt.Println(answer.Code, answer.Header().Get("WWW-Authenticate"))
	// Output: 401 Bearer error="invalid_token", error_description="the access token is not valid here"
}

// Each tool may need its own scopes. The challenge names the scopes that a client lacks.
func ExampleRequireScopes() {
	server := mcp.NewServer("files", "1.0.0", &mcp.ServerOptions{
		Middleware: []mcp.Middleware{oauth.RequireScopes(&oauth.ScopeRules{
			Tools:      map[string]oauth.Scopes{"read_file": oauth.AllOf("files:read")},
			OtherTools: oauth.AllOf("files:write"),
		})},
	})
	tool := func(context.Context, struct{}) (string, error) { return "done", nil }
	mcp.AddTool(server, &mcp.Tool{Name: "read_file"}, tool)
	mcp.AddTool(server, &mcp.Tool{Name: "write_file"}, tool)

	const secret = "a-token-of-the-configuration"
	verifier, err := oauth.NewStaticVerifier(oauth.StaticToken{Token: secret, Subject: "ann",
		Scopes: []string{"files:read"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	protect := oauth.Require(verifier, oauth.ResourceMetadata{Resource: "http://localhost:8080/mcp"}, nil)
	handler := protect(mcphttp.NewHandler(server, nil))
	for _, name := range []string{"read_file", "write_file"} {
		body := `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "` + name + `",
			"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}`
		request := httptest.NewRequest("POST", "http://localhost:8080/mcp", strings.NewReader(body))
		for name, value := range map[string]string{
			"Authorization": "Bearer " + secret, "Content-Type": "application/json",
			"MCP-Protocol-Version": "2026-07-28",
			"Mcp-Method":           "tools/call", "Mcp-Name": name,
		} {
			request.Header.Set(name, value)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		fmt.Println(name, answer.Code)
		for _, challenge := range oauth.ParseChallenges(answer.Header()) {
			fmt.Println(challenge.Params["error"]+":", challenge.Params["scope"])
		}
	}
	// Output:
	// read_file 200
	// write_file 403
	// insufficient_scope: files:write
}
