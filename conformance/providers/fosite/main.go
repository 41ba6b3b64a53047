// Fosite runs an authorization server on ory/fosite, the engine of Ory Hydra, with its storage in memory. The first line
// of its output is its issuer.
//
// The client mcp with the secret "secret" may use the redirect URI in the first argument, and may introspect its tokens,
// which are opaque. The login page accepts any name without a password. These are defaults of the engine: the server
// ignores resource, and issues refresh tokens only with the scope offline_access.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/storage"
)

// loginPage contains a form without an action, which browsers send to the address of the page.
const loginPage = `<!doctype html><title>Log in</title><form method="post">
<input name="username"><input name="password" type="password"><button>Log in</button></form>`

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	issuer := fmt.Sprintf("http://%s", l.Addr())
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		log.Fatal(err)
	}
	store := storage.NewMemoryStore()
	store.Clients["mcp"] = &fosite.DefaultClient{
		ID: "mcp", Secret: hash, RedirectURIs: []string{os.Args[1]}, ResponseTypes: []string{"code"},
		GrantTypes: []string{"authorization_code", "refresh_token"}, Scopes: []string{"mcp:read", "mcp:write", "offline_access"},
	}
	config := &fosite.Config{GlobalSecret: []byte("a secret of 32 bytes, of no worth"), EnforcePKCE: true,
		AccessTokenLifespan: time.Hour}
	s := &server{issuer: issuer, provider: compose.Compose(config, store,
		&compose.CommonStrategy{CoreStrategy: compose.NewOAuth2HMACStrategy(config)},
		compose.OAuth2AuthorizeExplicitFactory, compose.OAuth2RefreshTokenGrantFactory, compose.OAuth2PKCEFactory,
		compose.OAuth2TokenIntrospectionFactory, compose.OAuth2TokenRevocationFactory)}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = web.Close()
	}()
	fmt.Println(issuer)
	if err := web.Serve(l); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}

type server struct {
	issuer   string
	provider fosite.OAuth2Provider
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", s.metadata)
	mux.HandleFunc("/oauth2/auth", s.authorize)
	mux.HandleFunc("POST /oauth2/token", s.token)
	mux.HandleFunc("POST /oauth2/introspect", s.introspect)
	mux.HandleFunc("POST /oauth2/revoke", func(w http.ResponseWriter, r *http.Request) {
		s.provider.WriteRevocationResponse(r.Context(), w, s.provider.NewRevocationRequest(r.Context(), r))
	})
	return mux
}

func (s *server) metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"issuer": s.issuer, "authorization_endpoint": s.issuer + "/oauth2/auth",
		"token_endpoint": s.issuer + "/oauth2/token", "introspection_endpoint": s.issuer + "/oauth2/introspect",
		"revocation_endpoint": s.issuer + "/oauth2/revoke", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported":      []string{"plain", "S256"}, // like Hydra
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic", "none"},
		"scopes_supported":                      []string{"offline_access", "mcp:read", "mcp:write"},
	})
}

func (s *server) authorize(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAuthorizeRequest(ctx, r)
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	name := r.PostFormValue("username")
	if r.Method != http.MethodPost || name == "" {
		_, _ = io.WriteString(w, loginPage)
		return
	}
	for _, scope := range request.GetRequestedScopes() {
		request.GrantScope(scope)
	}
	session := &fosite.DefaultSession{Username: name, Subject: name}
	response, err := s.provider.NewAuthorizeResponse(ctx, request, session)
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	s.provider.WriteAuthorizeResponse(ctx, w, request, response)
}

func (s *server) token(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAccessRequest(ctx, r, &fosite.DefaultSession{})
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	response, err := s.provider.NewAccessResponse(ctx, request)
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	s.provider.WriteAccessResponse(ctx, w, request, response)
}

func (s *server) introspect(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	response, err := s.provider.NewIntrospectionRequest(ctx, r, &fosite.DefaultSession{})
	if err != nil {
		s.provider.WriteIntrospectionError(ctx, w, err)
		return
	}
	s.provider.WriteIntrospectionResponse(ctx, w, response)
}
