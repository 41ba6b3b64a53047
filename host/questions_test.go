package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A request for sampling goes to the caller, who sees the prompt, decides about the result, and may
// refuse. The host has no model, and adds nothing.
//
// Requirement: HOST-08, HOST-19
func TestSamplingIsTheCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	refused := errors.New("the user refused")
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		s := mcp.NewServer("ai", "1.0.0", nil)
		mcp.AddTool(s, &mcp.Tool{Name: "think"}, func(ctx context.Context, in struct{ Prompt string }) (string, error) {
			r, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{MaxTokens: 7, SystemPrompt: "Be short.",
				Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text(in.Prompt)}}}})
			if err != nil {
				return "refused", nil
			}
			return r.Text(), nil
		})
		h := newHost(t, map[string]mcp.Handler{"ai": s, "other": newServer("other")}, up, "{}")
		var seen *mcp.CreateMessageParams
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{
			Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
				if seen = p; p.Messages[0].Content[0].(*mcp.TextContent).Text == "secret" {
					return nil, refused
				}
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m",
					Content: []mcp.ContentBlock{mcp.Text("edited by the user")}}, nil
			}})
		r, err := c.CallTool(t.Context(), "ai__think", map[string]any{"Prompt": "hello"})
		if err != nil || r.Text() != "edited by the user" {
			t.Errorf("got %+v, %v", r, err)
		}
		if seen == nil || seen.MaxTokens != 7 || seen.SystemPrompt != "Be short." || len(seen.Messages) != 1 {
			t.Errorf("the caller was shown %+v", seen)
		}
		r, err = c.CallTool(t.Context(), "ai__think", map[string]any{"Prompt": "secret"})
		if err == nil && r.Text() != "refused" {
			t.Errorf("refused by the user: got %+v, %v", r, err)
		}
	})
}

// A page that a server wants the user to visit reaches the caller with its whole URL, and the host does
// not open it. Each answer of the user reaches the server.
//
// Requirement: HOST-26
func TestPagesReachTheCaller(t *testing.T) {
	const page = "https://bank.example/login?next=%2Fhome&state=" + "0123456789abcdef#part"
	for _, action := range []mcp.ElicitAction{mcp.ElicitAccept, mcp.ElicitDecline} {
		forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
			if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
				return // has no elicitation with URLs
			}
			s := mcp.NewServer("bank", "1.0.0", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "pay"}, func(ctx context.Context, _ struct{}) (string, error) {
				if err := mcp.AskURL(ctx, "login", page, "Log in"); err != nil {
					return "not paid: " + err.Error(), nil
				}
				return "paid", nil
			})
			h := newHost(t, map[string]mcp.Handler{"bank": s, "other": newServer("other")}, up, "{}")
			shown := ""
			c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{
				ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					shown = p.Message + " " + p.URL
					return &mcp.ElicitResult{Action: action}, nil
				}})
			r, err := c.CallTool(t.Context(), "bank__pay", nil)
			if err != nil || (r.Text() == "paid") != (action == mcp.ElicitAccept) || shown != "[bank] Log in "+page {
				t.Errorf("%s: got %+v, %v, the caller was shown %q", action, r, err, shown)
			}
		})
	}
}

// The states of servers are visible: events report each change, with the reason of a failure.
//
// Requirement: HOST-20, HOST-33
func TestEventsReportServers(t *testing.T) {
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "dead": nil}, on, "{}")
	events := h.Events(t.Context())
	if err := h.Start(t.Context()); err == nil {
		t.Error("start with a dead server: no error")
	}
	ready, failed := false, false
	for e := range events {
		ready = ready || e.Server == "calc" && e.State == status.Ready
		failed = failed || e.Server == "dead" && e.Err != nil && strings.Contains(e.Err.Error(), "no such program")
		if ready && failed {
			break
		}
	}
	for _, u := range h.Upstreams() {
		s := u.Status()
		if u.Name() == "calc" && (s.State != status.Ready || s.Revision != mcptest.Modern) {
			t.Errorf("calc: %+v, want ready with its revision", s)
		}
		if u.Name() == "dead" && s.Err == nil {
			t.Errorf("dead: %+v, want the error", s)
		}
	}
}
