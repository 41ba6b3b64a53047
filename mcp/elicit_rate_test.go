package mcp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: ELI-34
func TestClientLimitsTheRateOfQuestions(t *testing.T) {
	const limit, calls = 64, 100
	s := newServer(t, nil)
	addAskTool[struct{}](s, "ask", nil)
	for _, on := range mcptest.Since("2025-06-18") {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c := mcptest.Dial(t, s, on, &mcp.ClientOptions{
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						asked++
						return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
					},
				})
				flood := func() (failed int) {
					for range calls {
						_, err := mcp.CallTool[string](t.Context(), c, "ask", nil)
						if err == nil {
							continue
						}
						failed++
						if on.Modern() && !strings.Contains(err.Error(), "too many questions to the user") {
							t.Errorf("error of a refused question: %v", err)
						}
					}
					return failed
				}
				if failed := flood(); asked != limit || failed != calls-limit {
					t.Errorf("the user was asked %d times and %d calls failed, want %d and %d", asked, failed, limit, calls-limit)
				}
				time.Sleep(30 * time.Second)
				if asked = 0; flood() != calls-limit/2 || asked != limit/2 {
					t.Errorf("half a minute later the user was asked %d times, want %d", asked, limit/2)
				}
			})
		})
	}
}

// Requirement: ELI-34
func TestServerOfASessionReceivesATypedRefusal(t *testing.T) {
	for _, revision := range mcptest.Revisions()[2:4] {
		opts := &mcp.ClientOptions{Revision: revision, ElicitationsPerMinute: -1,
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				t.Error("the user was asked")
				return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
			}}
		response := answerInSession(t, opts, "elicitation/create",
			`{"message":"m","requestedSchema":{"type":"object","properties":{}}}`)
		if e := response.Error; e == nil || e.Code != mcp.CodeBusy || !strings.Contains(string(e.Data), "retryAfterMs") {
			t.Errorf("%s: got %+v, want code %d with retryAfterMs", revision, response, mcp.CodeBusy)
		}
	}
}
