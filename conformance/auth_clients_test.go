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

// A loginSeen is the output of clients/login.mjs.
type loginSeen struct {
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
			h := openHouse(t, nil)
			seen := playLogin(t, newPerson(t), "clients/"+name, h.endpoint)
			equal(t, "issuer", seen.Issuer, h.issuer)
			equal(t, "registered", seen.Registered, true)
			equal(t, "tools", seen.Tools, []string{"who_am_i", "write"})
			equal(t, "scopes asked for", len(seen.Visits), 2)
			checkCaller(t, "first", seen.Who, h, "mcp:read")
			equal(t, "wrote", seen.Wrote, "written")
			if !slices.Contains(seen.Stepped.Scopes, "mcp:write") {
				t.Errorf("after the step-up the scopes are %q", seen.Stepped.Scopes)
			}
			equal(t, "the caller stays the same", seen.Stepped.Subject+seen.Stepped.Client, seen.Who.Subject+seen.Who.Client)
			equal(t, "renewed", seen.Renewed, seen.Stepped)
			equal(t, "rotated", seen.Rotated, true)
			if seen.Saved < 3 {
				t.Errorf("tokens were saved %d times, want two logins and a refresh", seen.Saved)
			}
		})
	}
}

func checkCaller(t *testing.T, what string, c caller, h *house, scopes ...string) {
	t.Helper()
	equal(t, what+": subject", c.Subject, demoUser)
	equal(t, what+": issuer", c.Issuer, h.issuer)
	equal(t, what+": scopes", c.Scopes, scopes)
	if c.Client == "" {
		t.Errorf("%s: the client is not named", what)
	}
}

// playLogin runs a script and visits the pages that it prints.
func playLogin(t *testing.T, p *person, args ...string) loginSeen {
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
				t.Errorf("a page: %v\n%s", err, text)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, last)
	}
	var seen loginSeen
	if err := json.Unmarshal([]byte(last), &seen); err != nil {
		t.Fatalf("%v: %s", err, last)
	}
	return seen
}

// TestGoSDKClientLogsIn does the same with the client of the official Go SDK.
func TestGoSDKClientLogsIn(t *testing.T) {
	ctx := within(t, time.Minute)
	h := openHouse(t, nil)
	p := newPerson(t)
	var asked []string
	var held *expiring
	const callback = "http://127.0.0.1:47999/callback" // no server listens there: the response is read from the redirect
	handler := must(auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Go SDK client", RedirectURIs: []string{callback}, TokenEndpointAuthMethod: "none",
			GrantTypes: []string{"authorization_code", "refresh_token"},
		}},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			answer, err := p.authorize(ctx, args.URL, callback)
			if err != nil {
				return nil, err
			}
			asked = append(asked, must(url.Parse(args.URL))(t).Query().Get("scope"))
			return &auth.AuthorizationResult{Code: answer.Get("code"), State: answer.Get("state"), Iss: answer.Get("iss")}, nil
		},
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, token *oauth2.Token) (oauth2.TokenSource, error) {
			held = &expiring{ctx: ctx, config: c, token: token}
			return held, nil
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
	before := held.token
	held.expire()
	checkCaller(t, "renewed", asCaller(t, call("who_am_i")), h, "mcp:read", "mcp:write")
	if held.token.AccessToken == before.AccessToken || held.token.RefreshToken == before.RefreshToken {
		t.Error("the tokens were not renewed")
	}
	equal(t, "scopes asked for", len(asked), 2)
}

// asCaller decodes the result of who_am_i.
func asCaller(t *testing.T, text string) (c caller) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return c
}

// expiring is a source of tokens that expire when the test sets it.
type expiring struct {
	ctx    context.Context
	config *oauth2.Config
	token  *oauth2.Token
}

func (e *expiring) expire() {
	old := *e.token
	old.Expiry = time.Now().Add(-time.Minute)
	e.token = &old
}

func (e *expiring) Token() (*oauth2.Token, error) {
	token, err := e.config.TokenSource(e.ctx, e.token).Token()
	if err == nil {
		e.token = token
	}
	return token, err
}
