package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// askPolicy asks before each call.
var askPolicy = policyFunc(func(a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		return policy.Decision{Do: policy.OutcomeAsk, Rule: "calls", Reason: "be careful"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
})

// A bank is a server that counts what it has executed.
type bank struct {
	runs atomic.Int64
	last atomic.Value // the arguments of the last run, a string
}

func (b *bank) server() *mcp.Server {
	s := mcp.NewServer("bank", "1.0.0", nil)
	destructive := true
	mcp.AddTool(s, &mcp.Tool{Name: "pay", Annotations: &mcp.ToolAnnotations{Destructive: &destructive}},
		func(_ context.Context, in map[string]any) (string, error) {
			b.runs.Add(1)
			b.last.Store(string(must(json.Marshal(in))))
			return "paid", nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "confirm"}, func(ctx context.Context, _ struct{}) (string, error) {
		ok, err := mcp.Ask[bool](ctx, "sure", "Really?", nil)
		if err == nil {
			b.runs.Add(1)
		}
		return fmt.Sprint(ok), err
	})
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// openBank returns a host of a bank, which runs as a process of the given era.
func openBank(t *testing.T, era string, o host.Options) (*host.Host, *bank) {
	t.Helper()
	b := &bank{}
	p := &fakeProcess{handler: b.server()}
	o.Dial = func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return p.dial(ctx) }
	h := openFile(t, map[string]any{"bank": map[string]string{"command": "bank"}},
		`{"servers": {"bank": {"era": "`+era+`"}}}`, &o)
	t.Cleanup(func() { _ = h.Close(); p.work.Wait() })
	return h, b
}

// deciding returns options of a client whose user answers requests for approval, and other questions
// with yes.
func deciding(answer string, shown *[]string) *mcp.ClientOptions {
	return &mcp.ClientOptions{Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		if shown != nil {
			*shown = append(*shown, p.Message)
		}
		switch {
		case !strings.HasPrefix(p.Message, "Approve"):
			return yes(ctx, p)
		case answer == "cancel":
			return &mcp.ElicitResult{Action: mcp.ElicitCancel}, nil
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"decision":"` + answer + `"}`)}, nil
	}}
}

// Before a call, the caller's own client shows its user the server, the tool, its claims and the
// arguments, and the call runs only with the approval: on every transport and revision that can ask.
//
// Requirement: HOST-14, HOST-17, HOST-18, HOST-21
func TestApprovalByTheClient(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		for _, down := range oneProcess(mcptest.Since("2025-06-18")) {
			t.Run(era+" to "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, b := openBank(t, era, host.Options{Policy: askPolicy})
					var shown []string
					c := mcptest.Dial(t, h.For(&policy.Caller{}), down, deciding("once", &shown))
					for n := range 2 { // each call needs its own approval
						r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{"to": "eve\u202E", "amount": 9007199254740993})
						if err != nil || r.Text() != "paid" || int(b.runs.Load()) != n+1 || len(shown) != n+1 {
							t.Fatalf("call %d: got %+v, %v, %d runs, %d questions", n, r, err, b.runs.Load(), len(shown))
						}
					}
					for _, want := range []string{"Server: bank", "Tool: pay", "The server claims: may destroy data",
						`{"amount":9007199254740993,"to":"eve\u{202e}"}`, "be careful", "(rule calls)"} {
						if !strings.Contains(shown[0], want) {
							t.Errorf("the question does not have %q:\n%s", want, shown[0])
						}
					}
					if r, err := c.CallTool(t.Context(), "bank__confirm", nil); err != nil || r.Text() != "true" || len(shown) != 4 {
						t.Errorf("a call that asks itself: got %+v, %v, %d questions", r, err, len(shown))
					}
				})
			})
		}
	}
}

// A call that the user has not approved does not run.
func TestRefusedApprovals(t *testing.T) {
	for _, answer := range []string{"deny", "cancel"} {
		for _, down := range oneProcess(mcptest.Since("2025-06-18")) {
			t.Run(answer+" "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, b := openBank(t, "auto", host.Options{Policy: askPolicy})
					c := mcptest.Dial(t, h.For(&policy.Caller{}), down, deciding(answer, nil))
					f, text := failureOf(t, c, "bank__pay")
					if f == nil || f.Code != hosterr.CodeDenied || f.MayHaveRun || b.runs.Load() != 0 ||
						!strings.Contains(text, "has not approved") {
						t.Errorf("got %+v, %q, %d runs", f, text, b.runs.Load())
					}
				})
			})
		}
	}
}

// A call that no channel can ask about is refused: on every transport and revision.
//
// Requirement: HOST-14
func TestAskWithoutAChannel(t *testing.T) {
	h, b := openBank(t, "auto", host.Options{Policy: askPolicy})
	for _, down := range oneProcess(mcptest.Combinations()) {
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil) // without elicitation
		f, text := failureOf(t, c, "bank__pay")
		if f == nil || f.Code != hosterr.CodeApprovalNeeded || f.MayHaveRun || b.runs.Load() != 0 ||
			!strings.Contains(text, "be careful") {
			t.Errorf("%v: got %+v, %q, %d runs", down, f, text, b.runs.Load())
		}
	}
}

// A user approves only what the question has shown.
//
// Requirement: HOST-21
func TestArgumentsThatAreTooLongForAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, b := openBank(t, "modern", host.Options{Policy: askPolicy})
		var shown []string
		c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{Server: "bank"})), deciding("once", &shown))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		args := map[string]any{"note": strings.Repeat("a", 5000), "to": "mallory"}
		res, err := c.CallTool(t.Context(), "pay", args)
		if err != nil || !res.IsError || !strings.Contains(res.Text(), "shows 4096 bytes") {
			t.Errorf("got %+v, %v", res, err)
		}
		if len(shown) > 0 || b.runs.Load() > 0 {
			t.Errorf("asked %d times, executed %d times", len(shown), b.runs.Load())
		}
	})
}

// A forger is a client that writes its requests itself.
type forger struct {
	t    *testing.T
	view *host.View
}

// call sends a call of a tool with members of params in addition.
func (f *forger) call(tool, arguments, more string) map[string]json.RawMessage {
	f.t.Helper()
	params := `{"name":"` + tool + `","arguments":` + arguments + more + `,"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"f","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}`
	req, err := mcp.NewRequest(&jsonrpc.Message{Method: "tools/call", Params: json.RawMessage(params)})
	if err != nil {
		f.t.Fatal(err)
	}
	res, err := f.view.ServeMCP(f.t.Context(), req)
	if err != nil {
		return map[string]json.RawMessage{"error": json.RawMessage(fmt.Sprintf("%q", err.Error()))}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(must(req.EncodeResult(res)), &members); err != nil {
		f.t.Fatal(err)
	}
	return members
}

// approve returns the members of params that approve the call of a result.
func approveMember(asked map[string]json.RawMessage, decision string) string {
	return `,"requestState":` + string(asked["requestState"]) +
		`,"inputResponses":{"approval":{"action":"accept","content":{"decision":"` + decision + `"}}}`
}

const payment = `{"to":"bob","amount":9007199254740992}`

// The same approval, sent again, approves nothing: neither in the same process nor in one that shares
// its state and keys.
func TestReplayedApproval(t *testing.T) {
	keys, shared := [][]byte{[]byte("0123456789abcdef0123456789abcdef")}, &state.Memory{}
	h, b := openBank(t, "modern", host.Options{Policy: askPolicy, StateKeys: keys, State: shared})
	f := &forger{t, h.For(&policy.Caller{})}
	asked := f.call("bank__pay", payment, "")
	answer := approveMember(asked, "once")
	if r := f.call("bank__pay", payment, answer); !strings.Contains(string(r["content"]), "paid") || b.runs.Load() != 1 {
		t.Fatalf("got %s and %d runs", r, b.runs.Load())
	}
	if r := f.call("bank__pay", payment, answer); !strings.Contains(string(r["content"]), "used before") || b.runs.Load() != 1 ||
		!strings.Contains(string(r["content"]), "did not run") {
		t.Errorf("a replay: got %s and %d runs", r, b.runs.Load())
	}
	other, b2 := openBank(t, "modern", host.Options{Policy: askPolicy, StateKeys: keys, State: shared})
	f = &forger{t, other.For(&policy.Caller{})}
	if r := f.call("bank__pay", payment, answer); b2.runs.Load() != 0 {
		t.Errorf("a replay in another process: got %s and %d runs", r, b2.runs.Load())
	}
}

// The answer to a question of the server continues an approved call once.
func TestReplayedAnswerOfAnApprovedCall(t *testing.T) {
	h, b := openBank(t, "modern", host.Options{Policy: askPolicy})
	f := &forger{t, h.For(&policy.Caller{})}
	asked := f.call("bank__confirm", "{}", "")
	question := f.call("bank__confirm", "{}", approveMember(asked, "once"))
	var requests map[string]json.RawMessage
	if err := json.Unmarshal(question["inputRequests"], &requests); err != nil || len(requests) != 1 {
		t.Fatalf("got %s, want the question of the server", question)
	}
	answer := ""
	for key := range requests {
		answer = `,"requestState":` + string(question["requestState"]) + `,"inputResponses":{"` + key +
			`":{"action":"accept","content":{"value":true}}}`
	}
	for n := range 3 {
		if r := f.call("bank__confirm", "{}", answer); b.runs.Load() != 1 {
			t.Errorf("answer %d: got %s and %d runs", n, r, b.runs.Load())
		}
	}
}

// An approval is for one call: not for other arguments, another tool, another principal, a changed
// policy, nor for numbers that differ beyond the digits of a double.
func TestApprovalForAnotherCall(t *testing.T) {
	h, b := openBank(t, "modern", host.Options{Policy: askPolicy})
	f := &forger{t, h.For(&policy.Caller{})}
	eve := &forger{t, h.For(&policy.Caller{Principal: principal("eve")})}
	tests := map[string]func(answer string) map[string]json.RawMessage{
		"another amount": func(a string) map[string]json.RawMessage {
			return f.call("bank__pay", `{"to":"bob","amount":1}`, a)
		},
		"a number of the same value as a double": func(a string) map[string]json.RawMessage {
			return f.call("bank__pay", `{"to":"bob","amount":9007199254740993}`, a)
		},
		"another tool":      func(a string) map[string]json.RawMessage { return f.call("bank__confirm", payment, a) },
		"another principal": func(a string) map[string]json.RawMessage { return eve.call("bank__pay", payment, a) },
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			r := call(approveMember(f.call("bank__pay", payment, ""), "once"))
			if b.runs.Load() != 0 {
				t.Errorf("got %s and %d runs", r, b.runs.Load())
			}
		})
	}
	answer := approveMember(f.call("bank__pay", payment, ""), "once")
	h.SetPolicy(epochPolicy{askPolicy, 2})
	if r := f.call("bank__pay", payment, answer); b.runs.Load() != 0 {
		t.Errorf("after a change of the policy: got %s and %d runs", r, b.runs.Load())
	}
	// Another form of the same arguments is the same call; the server gets what was shown.
	answer = approveMember(f.call("bank__pay", payment, ""), "once")
	r := f.call("bank__pay", `{ "amount" : 9007199254740992, "to": "bo\u0062" }`, answer)
	if b.runs.Load() != 1 {
		t.Errorf("got %s and %d runs", r, b.runs.Load())
	}
}

// An epochPolicy is a policy of another epoch.
type epochPolicy struct {
	policy.Policy
	epoch uint64
}

func (p epochPolicy) Epoch() uint64 { return p.epoch }

// With the search mode of tools, approvals are for the tool that call_tool calls.
func TestApprovalOfAFoundTool(t *testing.T) {
	b := &bank{}
	o := host.Options{Policy: askPolicy, Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
		return mcp.InMemory(b.server()), nil
	}}
	h := openFile(t, map[string]any{"bank": map[string]string{"command": "bank"}}, `{"tools": {"mode": "search"}}`, &o)
	for _, down := range oneProcess(mcptest.Since("2025-06-18")) {
		b.runs.Store(0)
		var shown []string
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, deciding("once", &shown))
		r, err := c.CallTool(t.Context(), "call_tool", map[string]any{"name": "bank__pay", "arguments": map[string]any{"to": "bob"}})
		if err != nil || r.Text() != "paid" || b.runs.Load() != 1 || len(shown) != 1 || !strings.Contains(shown[0], "Tool: pay") {
			t.Errorf("%v: got %+v, %v, %d runs, questions %q", down, r, err, b.runs.Load(), shown)
		}
	}
}
