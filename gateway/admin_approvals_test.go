package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An asking policy asks for the approval of every call.
type asking struct{}

func (asking) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		return policy.Decision{Do: policy.OutcomeAsk, Rule: "calls"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

func (asking) Needs(policy.ActionKind) policy.Fields { return 0 }
func (asking) Epoch() uint64                         { return 1 }

// A request that waits for approval is in the list at once, and is sent or refused as the answer
// says. Its grant is listed, and asked for again when it was revoked.
func TestAdminDecidesAboutRequests(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, func(o *host.Options, _ *gateway.AdminOptions) {
		o.Policy, o.Channels = asking{}, []policy.Channel{policy.ChannelConsole}
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(a.host.For(&policy.Caller{Session: "s"})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := a.events("?types=pending,decided", "")
	decide := func(answer string) *mcp.CallToolResult {
		t.Helper()
		type outcome struct {
			res *mcp.CallToolResult
			err error
		}
		done := make(chan outcome, 1)
		go func() {
			res, err := c.CallTool(t.Context(), "one__whoami", map[string]any{})
			done <- outcome{res, err}
		}()
		pending := s.until("pending")
		var page struct {
			Pending []struct {
				ID, Server, Target, Rule string
				Answers                  []string
			}
		}
		a.get("GET", "/pending", "", &page)
		if len(page.Pending) != 1 || page.Pending[0].ID != pending.data.Request || page.Pending[0].Target != "whoami" {
			t.Fatalf("event %+v, pending %+v", pending, page)
		}
		a.get("POST", "/pending/"+page.Pending[0].ID+":decide", `{"answer":"`+answer+`"}`, &struct{}{})
		a.refused("POST", "/pending/"+page.Pending[0].ID+":decide", `{"answer":"deny"}`, 404, "not_pending")
		if e := s.until("decided"); e.data.Request != pending.data.Request || e.data.Answer != answer {
			t.Errorf("event %+v, want the answer %s to %s", e, answer, pending.data.Request)
		}
		o := <-done
		if o.err != nil && o.res == nil {
			t.Fatal(o.err)
		}
		return o.res
	}
	if res := decide("deny"); !res.IsError {
		t.Errorf("denied: %+v", res)
	}
	if res := decide("once"); res.Text() != "one" {
		t.Errorf("once: %+v", res)
	}
	if res := decide("always"); res.Text() != "one" {
		t.Errorf("always: %+v", res)
	}
	var grants struct {
		Grants []struct{ ID, Scope, Target, Approver string }
	}
	a.get("GET", "/grants", "", &grants)
	if len(grants.Grants) != 1 || grants.Grants[0].Scope != "always" || grants.Grants[0].Target != "whoami" ||
		grants.Grants[0].Approver != osuser.Name() {
		t.Fatalf("grants %+v", grants)
	}
	if res, err := c.CallTool(t.Context(), "one__whoami", map[string]any{}); err != nil || res.Text() != "one" {
		t.Errorf("with the grant: %+v, %v", res, err)
	}
	a.get("POST", "/grants/"+grants.Grants[0].ID+":revoke", "", &struct{}{})
	if res := decide("deny"); !res.IsError {
		t.Errorf("after the revocation: %+v", res)
	}
	var callers struct {
		Callers []struct{ Requests, Refused int }
	}
	a.get("GET", "/callers", "", &callers)
	if len(callers.Callers) != 1 || callers.Callers[0].Requests != 5 || callers.Callers[0].Refused != 2 {
		t.Errorf("callers %+v", callers)
	}
}

// A decision of a person of the console names the person in grants, records and events.
func TestDecisionsNameThePerson(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, func(o *host.Options, _ *gateway.AdminOptions) {
		o.Policy, o.Channels = asking{}, []policy.Channel{policy.ChannelConsole}
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(a.host.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := a.events("?types=pending,audit", "")
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), "one__whoami", map[string]any{})
		done <- err
	}()
	id := s.until("pending").data.Request
	ann := a.gateway.AdminClient(&mcp.Principal{Subject: "ann", Issuer: "https://idp.example"})
	res, err := ann.Post(adminBase+"/pending/"+id+":decide", "application/json",
		strings.NewReader(`{"answer":"always"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	const want = "ann https://idp.example"
	approver := ""
	for approver == "" { // the request itself is recorded too
		approver = s.until("audit").data.Approver
	}
	var grants struct{ Grants []struct{ Approver string } }
	a.get("GET", "/grants", "", &grants)
	if approver != want || len(grants.Grants) != 1 || grants.Grants[0].Approver != want {
		t.Errorf("event by %q, grants %+v, want %q", approver, grants, want)
	}
}
