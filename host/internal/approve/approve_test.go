package approve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A view is the view of a caller. No call continues an earlier round at its server.
type view struct{ caller *policy.Caller }

func (v view) Caller() *policy.Caller { return v.caller }
func (v view) Principal() string      { return v.caller.Key() }

func (v view) OpenState(*mcp.Request, *call.Call) (st round.State, ok bool, err error) {
	return st, true, round.ErrInvalid
}

// A pool is the pool of a server, whose configuration a test may replace.
type pool struct{ entry *server.Server }

func (p *pool) Name() string          { return "bank" }
func (p *pool) Entry() *server.Server { return p.entry }

// program returns the configuration of a command.
func program(command string) *server.Server {
	return &server.Server{Settings: &config.ServerSettings{},
		Config: &config.Server{Name: "bank", Type: config.TypeStdio, Command: command}}
}

// A stage is the stage, with a next function that counts the calls that reach it.
type stage struct {
	*approve.Approver
	changed bool   // the policy or the definition changed during the wait
	again   func() // called when the policy decides again
	sent    int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	sealer, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{again: func() {}}
	s.Approver = approve.New(approve.Options{State: &state.Memory{}, Ring: sealer.Ring, Context: t.Context(),
		Logger: slog.New(slog.DiscardHandler), Run: func(f func()) { go f() }, Epoch: func() uint64 { return 1 },
		Changed: func(approve.Change) {}, Record: func(*event.Record) {}, Count: func(context.Context, bool, error) {},
		Waits: func(string) (done func()) { return func() {} },
		Again: func(context.Context, *call.Call, *mcp.Request) (bool, error) {
			s.again()
			return !s.changed, nil
		}})
	return s
}

// serve passes a call through the stage.
func (s *stage) serve(ctx context.Context, c *call.Call) (mcp.Result, error) {
	return s.Approve(func(context.Context, *call.Call) (mcp.Result, error) {
		s.sent++
		return mcp.RawResult(`{"resultType":"complete"}`), nil
	})(ctx, c)
}

// payment returns a call that requires an approval, after the changes of edit.
func payment(t *testing.T, params string, edit ...func(c *call.Call)) *call.Call {
	t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`
	req, err := mcp.NewRequest(&jsonrpc.Message{Method: "tools/call", Params: json.RawMessage(
		fmt.Sprintf(`{"name":"pay",%s,%s}`, params, meta))})
	if err != nil {
		t.Fatal(err)
	}
	ann := &policy.Caller{Principal: &mcp.Principal{Subject: "ann"}, Session: "1"}
	c := &call.Call{View: view{ann}, Pool: &pool{program("one")}, Server: program("one"), Kind: policy.ActionCall,
		Target: "pay", Request: req,
		Action: &policy.Action{Kind: policy.ActionCall, Method: "tools/call", Caller: ann, Server: "bank", Target: "pay",
			Arguments: call.Arguments(req), Digest: [32]byte{1}},
		Decision: &policy.Decision{Do: policy.OutcomeAsk, Rule: "payments"}}
	for _, f := range edit {
		f(c)
	}
	return c
}

// answered returns the params of a call that answers a question.
func answered(t *testing.T, params string, question mcp.Result, answer approval.Answer) string {
	t.Helper()
	raw, _ := question.(mcp.RawResult)
	var asked struct{ RequestState string }
	if err := json.Unmarshal(raw, &asked); err != nil || asked.RequestState == "" {
		t.Fatalf("got %s, want a question", raw)
	}
	return fmt.Sprintf(`%s,"requestState":%q,"inputResponses":{"approval":{"action":"accept","content":{"decision":%q}}}`,
		params, asked.RequestState, answer)
}

// ask returns the question about a call.
func (s *stage) ask(t *testing.T, c *call.Call) mcp.Result {
	t.Helper()
	sent := s.sent
	res, err := s.serve(t.Context(), c)
	if raw, ok := res.(mcp.RawResult); err != nil || !ok || raw.ResultType() != driver.ResultInputRequired || s.sent != sent {
		t.Fatalf("got %v, %v, %d sent, want a question", res, err, s.sent)
	}
	return res
}

// wantRefused checks that a call fails with a code and is not sent.
func (s *stage) wantRefused(t *testing.T, c *call.Call, code hosterr.Code) {
	t.Helper()
	sent := s.sent
	_, err := s.serve(t.Context(), c)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != code || s.sent != sent {
		t.Errorf("got %v, %d sent, want the code %s", err, s.sent-sent, code)
	}
}

// wantSent checks that a call is sent without a question.
func (s *stage) wantSent(t *testing.T, c *call.Call) {
	t.Helper()
	sent := s.sent
	if res, err := s.serve(t.Context(), c); err != nil || s.sent != sent+1 {
		t.Errorf("got %v, %v, %d sent, want the call to be sent", res, err, s.sent-sent)
	}
}

const toBob = `"arguments":{"to":"bob"}`

// A call that the policy allows passes without a question, and a call without an answer is not sent.
func TestOnlyCallsThatRequireAnApprovalAreAskedAbout(t *testing.T) {
	s := newStage(t)
	s.wantSent(t, payment(t, toBob, func(c *call.Call) { c.Decision.Do = policy.OutcomeAllow }))
	s.wantSent(t, payment(t, toBob, func(c *call.Call) { c.Decision = nil }))
	s.ask(t, payment(t, toBob))
}

// A refusal ends the call before the next stage, and tells it to the caller.
func TestDenyRefusesTheCall(t *testing.T) {
	s := newStage(t)
	deny := payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Deny))
	s.wantRefused(t, deny, hosterr.CodeDenied)
	if !deny.Approval.Begins {
		t.Error("the call looks as if its server had received a part of it")
	}
	once := payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Once))
	s.wantSent(t, once)
	if text := string(once.Request.Params); once.Approval.Nonce == "" || once.Decision.Approver != "ann" ||
		call.Arguments(once.Request) == nil || round.Continues(once.Request) {
		t.Errorf("approved call: %+v, approver %q, params %s", once.Approval, once.Decision.Approver, text)
	}
}

// An answer is for the call that was asked about, and for one use.
func TestAnswerCountsOnceForItsCall(t *testing.T) {
	s := newStage(t)
	question := s.ask(t, payment(t, toBob))
	for name, edit := range map[string]func(c *call.Call){
		"target":     func(c *call.Call) { c.Action.Target = "refund" },
		"server":     func(c *call.Call) { c.Action.Server = "other" },
		"program":    func(c *call.Call) { c.Server = program("two") },
		"definition": func(c *call.Call) { c.Action.Digest[0]++ },
	} {
		t.Run("other "+name, func(t *testing.T) {
			s.wantRefused(t, payment(t, answered(t, toBob, question, approval.Once), edit), hosterr.CodeDenied)
		})
	}
	// A state that does not belong to the request or its caller is not even opened: the call looks like the
	// answer to a server's question that this host did not issue.
	for name, c := range map[string]*call.Call{
		"arguments": payment(t, answered(t, `"arguments":{"to":"eve"}`, question, approval.Once)),
		"caller":    payment(t, answered(t, toBob, question, approval.Once), as("bob")),
	} {
		sent := s.sent
		if _, err := s.serve(t.Context(), c); !errors.Is(err, round.ErrInvalid) || s.sent != sent {
			t.Errorf("other %s: got %v, %d sent, want %v", name, err, s.sent-sent, round.ErrInvalid)
		}
	}
	s.wantSent(t, payment(t, answered(t, toBob, question, approval.Once)))
	s.wantRefused(t, payment(t, answered(t, toBob, question, approval.Once)), hosterr.CodeDenied)
}

// as makes a call a call of another principal.
func as(subject string) func(c *call.Call) {
	return func(c *call.Call) {
		other := &policy.Caller{Principal: &mcp.Principal{Subject: subject}, Session: "1"}
		c.View, c.Action.Caller = view{other}, other
	}
}

// A grant covers later calls of the item with any arguments, and no call that differs in anything else.
func TestGrantCoversExactlyItsBinding(t *testing.T) {
	s := newStage(t)
	s.wantSent(t, payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Always)))
	s.wantSent(t, payment(t, `"arguments":{"to":"eve"}`))
	for name, edit := range map[string]func(c *call.Call){
		"target":  func(c *call.Call) { c.Action.Target = "refund" },
		"server":  func(c *call.Call) { c.Action.Server = "other" },
		"program": func(c *call.Call) { c.Server = program("two") },
		"rule":    func(c *call.Call) { c.Decision.Rule = "refunds" },
		"method":  func(c *call.Call) { c.Action.Method = "prompts/get" },
		"profile": func(c *call.Call) {
			c.Action.Caller = &policy.Caller{Principal: c.Action.Caller.Principal, Profile: "p"}
		},
		"caller": as("bob"),
	} {
		t.Run("other "+name, func(t *testing.T) { s.ask(t, payment(t, toBob, edit)) })
	}
	s.wantSent(t, payment(t, toBob))
	// A changed definition ends the grant, even if the old definition returns.
	s.ask(t, payment(t, toBob, func(c *call.Call) { c.Action.Digest[0]++ }))
	s.ask(t, payment(t, toBob))
}

// A grant for a session covers calls of the session, until it ends.
func TestSessionGrantEndsWithItsSession(t *testing.T) {
	s := newStage(t)
	s.wantSent(t, payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Session)))
	s.wantSent(t, payment(t, toBob))
	s.ask(t, payment(t, toBob, func(c *call.Call) {
		c.Action.Caller = &policy.Caller{Principal: c.Action.Caller.Principal, Session: "2"}
	}))
	s.EndSession("1")
	s.ask(t, payment(t, toBob))
}

// A process that leaves a session keeps nothing about it. The grants end with the session at a process that
// has used a grant since.
func TestLeftSessionKeepsItsGrants(t *testing.T) {
	s := newStage(t)
	s.wantSent(t, payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Session)))
	s.LeaveSession("1")
	s.EndSession("1")
	s.wantSent(t, payment(t, toBob))
	s.EndSession("1")
	s.ask(t, payment(t, toBob))
}

// Grants for sessions, which may have ended, do not prevent further grants.
func TestOldestSessionGrantMakesRoom(t *testing.T) {
	s := newStage(t)
	s.wantSent(t, payment(t, answered(t, toBob, s.ask(t, payment(t, toBob)), approval.Session)))
	grants, err := s.Approvals().Grants(t.Context())
	if err != nil || len(grants) != 1 {
		t.Fatalf("grants %+v, %v, want one", grants, err)
	}
	for n := 1; n < 1000; n++ {
		g := grants[0]
		g.ID, g.Created = fmt.Sprint(n), g.Created.Add(-time.Duration(n)*time.Second)
		if n == 999 {
			g.Scope, g.Session, g.Expires = approval.Always, "", time.Time{}
		}
		value, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.State.CompareAndSet(t.Context(), approval.KindGrant, g.ID, 0, value); err != nil {
			t.Fatal(err)
		}
	}
	refund := func(c *call.Call) { c.Action.Target = "refund" }
	s.wantSent(t, payment(t, answered(t, toBob, s.ask(t, payment(t, toBob, refund)), approval.Session), refund))
	s.wantSent(t, payment(t, toBob, refund))
	s.wantSent(t, payment(t, toBob))
	grants, err = s.Approvals().Grants(t.Context())
	if err != nil || len(grants) != 1000 || grants[0].ID != "999" || grants[1].ID != "997" {
		t.Errorf("%d grants, %v, want 1000 without the second oldest", len(grants), err)
	}
}

// A reload during a call must not move its approval to another program: neither a grant, nor the binding of
// a question of the server.
func TestApprovalsAreForTheProgramThatThePolicyDecidedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.Use(approve.Channels{Order: []policy.Channel{policy.ChannelConsole}})
		wait := func(c *call.Call, answer approval.Answer, before func()) error {
			done := make(chan error)
			go func() {
				_, err := s.serve(t.Context(), c)
				done <- err
			}()
			synctest.Wait()
			before()
			pending, err := s.Approvals().Pending(t.Context())
			if err != nil || len(pending) != 1 {
				t.Fatalf("got %d pending, error %v, want 1", len(pending), err)
			}
			if err := s.Approvals().Decide(t.Context(), pending[0].ID, answer, "olga"); err != nil {
				t.Error(err)
			}
			return <-done
		}
		replaced := payment(t, toBob)
		err := wait(replaced, approval.Once, func() { replaced.Pool.(*pool).entry = program("two") })
		if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeDenied || s.sent != 0 {
			t.Errorf("replaced while it waited: got %v, %d sent, want %s", err, s.sent, hosterr.CodeDenied)
		}
		granted := payment(t, toBob)
		s.again = func() { granted.Pool.(*pool).entry = program("two") }
		if err := wait(granted, approval.Always, func() {}); err != nil {
			t.Error(err)
		}
		s.again = func() {}
		sent := s.sent
		other := payment(t, toBob, func(c *call.Call) { c.Pool, c.Server = &pool{program("two")}, program("two") })
		if err := wait(other, approval.Deny, func() {}); err == nil || s.sent != sent {
			t.Errorf("the grant covers another program: got %v, %d sent", err, s.sent-sent)
		}

		allowed := payment(t, toBob, func(c *call.Call) { c.Decision.Do = policy.OutcomeAllow })
		moved := payment(t, toBob, func(c *call.Call) { c.Decision.Do = policy.OutcomeAllow })
		moved.Pool = &pool{program("two")} // of the server that replaced the removed server
		var before, after round.State
		s.Mark(allowed, &before)
		s.Mark(moved, &after)
		if before.Policy == "" || before.Policy != after.Policy {
			t.Errorf("the question is bound to %q, want %q", after.Policy, before.Policy)
		}
	})
}

// A call that waits for the operator is sent after the approval, unless the policy or the definition
// changed meanwhile, and refused when the program ends.
func TestCallsWaitForTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.Use(approve.Channels{Order: []policy.Channel{policy.ChannelConsole}})
		// decide answers the call that waits.
		decide := func(answer approval.Answer, before func()) error {
			done := make(chan error)
			go func() {
				_, err := s.serve(t.Context(), payment(t, toBob))
				done <- err
			}()
			synctest.Wait()
			before()
			if pending, err := s.Approvals().Pending(t.Context()); err == nil && len(pending) == 1 {
				err = s.Approvals().Decide(t.Context(), pending[0].ID, answer, "olga")
				if err != nil {
					t.Error(err)
				}
			}
			return <-done
		}
		if err := decide(approval.Once, func() {}); err != nil || s.sent != 1 {
			t.Errorf("approved: %v, %d sent", err, s.sent)
		}
		for _, test := range []struct {
			name   string
			answer approval.Answer
			before func()
			code   hosterr.Code
		}{
			{"denied", approval.Deny, func() {}, hosterr.CodeDenied},
			{"changed", approval.Once, func() { s.changed = true }, hosterr.CodeDenied},
			{"end", approval.Once, func() { s.End(); synctest.Wait() }, hosterr.CodeUnavailable},
		} {
			err := decide(test.answer, test.before)
			if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != test.code || s.sent != 1 {
				t.Errorf("%s: got %v, %d sent, want %s", test.name, err, s.sent, test.code)
			}
		}
	})
}
