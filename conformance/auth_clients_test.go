package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// A loginReport is the output of clients/login.mjs.
type loginReport struct {
	Visits     []string // the scopes of each
	Saved      int      // number of times tokens were saved
	Issuer     string
	Registered bool
	Tools      []string
	Who        caller
	Wrote      string
	Stepped    caller
	Renewed    caller
	Rotated    bool
}

// TestOfficialClientsLogIn runs registration, login, step-up and refresh of the official TypeScript
// clients against our server.
func TestOfficialClientsLogIn(t *testing.T) {
	needNode(t)
	for _, name := range []string{"login_session.mjs", "login_modern.mjs"} {
		t.Run(name, func(t *testing.T) {
			h := newProtectedServer(t, nil)
			got := runLogin(t, newLoginUser(t), "clients/"+name, h.endpoint)
			equal(t, "issuer", got.Issuer, h.issuer)
			equal(t, "registered", got.Registered, true)
			equal(t, "tools", got.Tools, []string{"who_am_i", "write"})
			equal(t, "logins", len(got.Visits), 2)
			checkCaller(t, "first", got.Who, h, "mcp:read")
			equal(t, "wrote", got.Wrote, "written")
			if !slices.Contains(got.Stepped.Scopes, "mcp:write") {
				t.Errorf("scopes after the step-up: %q, want mcp:write in them", got.Stepped.Scopes)
			}
			equal(t, "caller after the step-up", got.Stepped.Subject+got.Stepped.Client, got.Who.Subject+got.Who.Client)
			equal(t, "renewed", got.Renewed, got.Stepped)
			equal(t, "rotated", got.Rotated, true)
			if got.Saved < 3 {
				t.Errorf("tokens were saved %d times, want two logins and a refresh", got.Saved)
			}
		})
	}
}

func checkCaller(t *testing.T, what string, c caller, h *protectedServer, scopes ...string) {
	t.Helper()
	equal(t, what+": subject", c.Subject, demoUser)
	equal(t, what+": issuer", c.Issuer, h.issuer)
	equal(t, what+": scopes", c.Scopes, scopes)
	if c.Client == "" {
		t.Errorf("%s: no client in %+v, want one", what, c)
	}
}

// playLogin runs a script and visits the pages that it prints.
func runLogin(t *testing.T, p *loginUser, args ...string) loginReport {
	t.Helper()
	ctx := within(t, 40*time.Second)
	cmd := exec.CommandContext(ctx, needNode(t), args...)
	cmd.Stderr = t.Output()
	out := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		if page, ok := strings.CutPrefix(last, "visit "); ok {
			if text, err := p.visit(ctx, page); err != nil {
				t.Errorf("page %s: %v\n%s", page, err, text)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, last)
	}
	var report loginReport
	if err := json.Unmarshal([]byte(last), &report); err != nil {
		t.Fatalf("%v: %s", err, last)
	}
	return report
}

// TestGoSDKClientLogsIn runs registration, login, step-up and refresh of the client of the official
// Go SDK against our server.
func TestGoSDKClientLogsIn(t *testing.T) {
	ctx := within(t, time.Minute)
	h := newProtectedServer(t, nil)
	p := newLoginUser(t)
	var scopes []string // of every login
	var tokens *expiringTokens
	// No server listens at the callback: the response is read from the redirect.
	const callback = "http://127.0.0.1:47999/callback"
	metadata := &oauthex.ClientRegistrationMetadata{
		ClientName: "Go SDK client", RedirectURIs: []string{callback}, TokenEndpointAuthMethod: "none",
		GrantTypes: []string{"authorization_code", "refresh_token"},
	}
	fetchCode := func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		answer, err := p.authorize(ctx, args.URL, callback)
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, must(url.Parse(args.URL))(t).Query().Get("scope"))
		return &auth.AuthorizationResult{Code: answer.Get("code"), State: answer.Get("state"),
			Iss: answer.Get("iss")}, nil
	}
	handler := must(auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: metadata},
		AuthorizationCodeFetcher:        fetchCode,
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, token *oauth2.Token) (oauth2.TokenSource, error) {
			tokens = &expiringTokens{ctx: ctx, config: c, token: token}
			return tokens, nil
		},
	}))(t)
	c := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1"}, nil)
	s := must(c.Connect(ctx, &gosdk.StreamableClientTransport{Endpoint: h.endpoint, OAuthHandler: handler}, nil))(t)
	defer func() { _ = s.Close() }()
	call := func(tool string) string {
		t.Helper()
		res := must(s.CallTool(ctx, &gosdk.CallToolParams{Name: tool}))(t)
		return res.Content[0].(*gosdk.TextContent).Text
	}
	checkCaller(t, "first", asCaller(t, call("who_am_i")), h, "mcp:read")
	equal(t, "wrote", call("write"), "written")
	checkCaller(t, "stepped", asCaller(t, call("who_am_i")), h, "mcp:read", "mcp:write")
	before := tokens.token
	tokens.expire()
	checkCaller(t, "renewed", asCaller(t, call("who_am_i")), h, "mcp:read", "mcp:write")
	if tokens.token.AccessToken == before.AccessToken || tokens.token.RefreshToken == before.RefreshToken {
		t.Error("the tokens are the same after they expired, want new ones")
	}
	equal(t, "logins", len(scopes), 2)
}

// asCaller decodes the result of who_am_i.
func asCaller(t *testing.T, text string) (c caller) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return c
}

// expiringTokens is a source of tokens that expire when the test calls expire.
type expiringTokens struct {
	ctx    context.Context
	config *oauth2.Config
	token  *oauth2.Token
}

func (e *expiringTokens) expire() {
	old := *e.token
	old.Expiry = time.Now().Add(-time.Minute)
	e.token = &old
}

func (e *expiringTokens) Token() (*oauth2.Token, error) {
	token, err := e.config.TokenSource(e.ctx, e.token).Token()
	if err == nil {
		e.token = token
	}
	return token, err
}
