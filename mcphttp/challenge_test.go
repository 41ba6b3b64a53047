package mcphttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A challengeError is an error like that of an authorization package.
type challengeError struct {
	status int
	err    error
}

func (e *challengeError) Error() string { return "refused" }
func (e *challengeError) Unwrap() error { return e.err }
func (e *challengeError) RefuseHTTP() (int, []string) {
	return e.status, []string{`Bearer error="insufficient_scope"`, `DPoP algs="ES256"`}
}

// newChallengingServer returns a server whose tool fails with a challengeError as its arguments say.
func newChallengingServer() *mcp.Server {
	s := mcp.NewServer("challenging", "1", &mcp.ServerOptions{Logger: discardLogger})
	type in struct {
		Status  int  `json:"status"`
		Plain   bool `json:"plain,omitzero"`
		Wrapped bool `json:"wrapped,omitzero"`
		Late    bool `json:"late,omitzero"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(ctx context.Context, in in) (string, error) {
		if in.Late {
			mcp.Progress(ctx, 1, 2, "")
		}
		refused := &challengeError{in.Status, mcp.Errorf(mcp.CodeInvalidRequest, "not with this token")}
		switch {
		case in.Plain:
			refused.err = nil
		case in.Wrapped:
			return "", fmt.Errorf("tool: %w", refused)
		}
		return "", refused
	})
	return s
}

// The method RefuseHTTP of an error decides the status and the challenges of the response.
//
// Requirement: AUTH-09
func TestErrorWithAChallengeDecidesTheStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments string
		status    int
		challenge bool
	}{
		"403":                  {`{"status":403}`, 403, true},
		"401":                  {`{"status":401}`, 401, true},
		"within another error": {`{"status":403,"wrapped":true}`, 403, true},
		"another status":       {`{"status":200}`, 200, false},
		"another error status": {`{"status":500}`, 200, false},
		"after a notification": {`{"status":403,"late":true}`, 200, false},
		"failure of the tool":  {`{"status":403,"plain":true}`, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, newChallengingServer(), nil)
			call := `"method":"tools/call","params":{"name":"fail","arguments":` + tc.arguments +
				`,"_meta":{"progressToken":1`
			session := f.initialize(november2025)
			for era, a := range map[string]response{
				"modern": f.do("POST", `{"jsonrpc":"2.0","id":7,`+call+
					`,"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
					`"io.modelcontextprotocol/clientCapabilities":{}}}}`,
					"Mcp-Protocol-Version: "+modern, "Mcp-Method: tools/call", "Mcp-Name: fail"),
				"session": f.do("POST", `{"jsonrpc":"2.0","id":7,`+call+`}}}`, "Mcp-Session-Id: "+session.id),
			} {
				if a.status != tc.status || (len(a.header["Www-Authenticate"]) == 2) != tc.challenge {
					t.Errorf("%s: got %d %v %s, want %d and challenges %t", era, a.status, a.header, a.body, tc.status,
						tc.challenge)
				}
				if !strings.Contains(a.body, `"id":7`) {
					t.Errorf("%s: got body %s, want the id and the message", era, a.body)
				}
				if tc.challenge && !strings.Contains(a.body, "not with this token") {
					t.Errorf("%s: got body %s, want the id and the message", era, a.body)
				}
			}
		})
	}
}

// Requirement: AUTH-09
func TestInitializeWithAChallengeOpensNoSession(t *testing.T) {
	f := start(t, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return nil, &challengeError{http.StatusForbidden, mcp.Errorf(mcp.CodeInvalidRequest, "no")}
	}), nil)
	a := f.do("POST", initializeBody(november2025))
	if a.status != 403 || len(a.header["Www-Authenticate"]) != 2 || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("got %d %v %s, want 403 with two challenges and no session", a.status, a.header, a.body)
	}
}
