package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// inputHandler returns the handler of a server whose tools ask one question, and accept any answer.
func inputHandler(t *testing.T, method, params string) mcp.Handler {
	return mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		switch {
		case req.Method == "server/discover":
			return mcp.RawResult(discovered), nil
		case memberOf(t, req.Params, "inputResponses") != "":
			return mcp.RawResult(emptyContent), nil
		}
		return mcp.RawResult(fmt.Sprintf(
			`{"resultType":"input_required","inputRequests":{"k":{"method":%q,"params":%s}}}`, method, params)), nil
	})
}

// invalidSampling has params of sampling/createMessage that violate the protocol.
var invalidSampling = map[string]string{
	"a role other than user and assistant": `{"maxTokens":9,"messages":[{"role":"system","content":` + hi + `}]}`,
	"a message without a role":             `{"maxTokens":9,"messages":[{"content":` + hi + `}]}`,
	"a message without content":            `{"maxTokens":9,"messages":[{"role":"user"}]}`,
	"no messages":                          `{"maxTokens":9}`,
	"no maxTokens":                         `{"messages":[{"role":"user","content":` + hi + `}]}`,
	"maxTokens of zero":                    `{"maxTokens":0,"messages":[{"role":"user","content":` + hi + `}]}`,
	"a tool result mixed with text": `{"maxTokens":9,"messages":[{"role":"assistant","content":` + toolUse + `},` +
		`{"role":"user","content":[` + toolResult1 + `,` + hi + `]}]}`,
	"a tool use without a result": `{"maxTokens":9,"messages":[{"role":"assistant","content":` + toolUse + `},` +
		`{"role":"user","content":` + hi + `}]}`,
	"a tool result without a use": `{"maxTokens":9,"messages":[{"role":"user","content":` + toolResult1 + `}]}`,
}

const (
	hi          = `{"type":"text","text":"hi"}`
	toolUse     = `{"type":"tool_use","id":"1","name":"weather","input":{}}`
	toolResult1 = `{"type":"tool_result","toolUseId":"1","content":[]}`
)

// Requirement: SAMP-09, SAMP-18
func TestInvalidConversationsDoNotReachSample(t *testing.T) {
	for name, params := range invalidSampling {
		t.Run(name, func(t *testing.T) {
			opts := &mcp.ClientOptions{
				SampleTools: true,
				Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
					t.Error("Sample was called")
					return &mcp.CreateMessageResult{Model: "m", Content: []mcp.ContentBlock{mcp.Text("?")}}, nil
				},
			}
			h := inputHandler(t, "sampling/createMessage", params)
			onClients(t, h, opts, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
				_, err := c.CallTool(t.Context(), "t", nil)
				if err == nil {
					t.Fatal("the call succeeded, want an error")
				}
				if on.Modern() && !errors.Is(err, mcp.ErrInvalidResult) {
					t.Errorf("got %v, want ErrInvalidResult", err)
				}
			})
		})
	}
}

// In sessions the server is answered with -32602.
//
// Requirement: SAMP-09
func TestSessionsAnswerInvalidParams(t *testing.T) {
	for _, revision := range sessionRevisions {
		for name, params := range invalidSampling {
			opts := &mcp.ClientOptions{
				SampleTools: true, Revision: revision,
				Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
					t.Error("Sample was called")
					return nil, errors.New("called")
				},
			}
			got := answerInSession(t, opts, "sampling/createMessage", params)
			if got.Error == nil || got.Error.Code != mcp.CodeInvalidParams {
				t.Errorf("%s: %s: got %+v, want an error of code -32602", revision, name, got)
			}
		}
	}
}
