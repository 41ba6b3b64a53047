package root

import (
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// jsonOf runs a command with --json, which must succeed, and decodes what it prints.
func jsonOf[T any](t *testing.T, args ...string) (value T) {
	t.Helper()
	o := patchbay(t, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(o.stdout), &value); o.status != exit.OK || err != nil {
		t.Fatalf("%q: %+v, %v", args, o, err)
	}
	return value
}

// failedWith runs a command with --json, which must fail, and returns the error that it prints.
func failedWith(t *testing.T, args ...string) exit.Report {
	t.Helper()
	o := patchbay(t, "", append(args, "--json")...)
	var value struct{ Error exit.Report }
	if err := json.Unmarshal([]byte(o.stdout), &value); err != nil || value.Error.Exit != o.status || o.status == exit.OK {
		t.Fatalf("%q: %+v, %v", args, o, err)
	}
	return value.Error
}

type pendingList struct {
	Pending []struct {
		ID, Server, Method, Target, Client, Rule, Reason string
		Arguments                                        json.RawMessage
		Answers                                          []string
	}
}

type grantList struct {
	Grants []struct{ ID, Server, Target, Rule, Scope, Channel, Approver string }
}

// waitPending returns the only request that waits for approval.
func (a *attack) waitPending() (list pendingList) {
	a.t.Helper()
	a.until("a request waits for approval", func() bool {
		list = jsonOf[pendingList](a.t, "gateway", "pending")
		return len(list.Pending) == 1
	})
	return list
}

const askOperator = `"approve": ["console"], ` + payments

// The operator sees, approves and denies what waits at a running gateway.
func TestApprovalByTheOperator(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", askOperator)
	if o := patchbay(t, "", "gateway", "pending"); o.stdout != "No request waits for approval.\n" || o.status != exit.OK {
		t.Errorf("pending: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "pending", "--json"); o.stdout != `{"pending":[]}`+"\n" {
		t.Errorf("pending --json: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "grants", "--json"); o.stdout != `{"grants":[]}`+"\n" {
		t.Errorf("grants --json: %+v", o)
	}
	for _, c := range []struct{ verb, decision, want string }{
		{"approve", "once", "paid 5 to bob"}, {"deny", "deny", "has not approved the request"},
	} {
		result := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
		r := a.waitPending().Pending[0]
		if r.Server != "bank" || r.Target != "pay" || r.Method != "tools/call" || r.Client != "attacker 1" || r.Rule != "payments" ||
			r.Reason != "money leaves" || string(r.Arguments) != `{"Amount":5,"To":"bob"}` {
			t.Errorf("pending: %+v", r)
		}
		o := patchbay(t, "", "gateway", "pending")
		for _, text := range []string{r.ID, "pay of server bank", "from the local user, client attacker 1", "rule payments money leaves",
			`arguments: {"Amount":5,"To":"bob"}`} {
			if !strings.Contains(o.stdout, text) {
				t.Errorf("pending has no %q: %+v", text, o)
			}
		}
		decided := jsonOf[map[string]string](t, "gateway", c.verb, r.ID)
		if decided["id"] != r.ID || decided["decision"] != c.decision {
			t.Errorf("%s: %v", c.verb, decided)
		}
		if got := <-result; !strings.Contains(got, c.want) {
			t.Errorf("%s: the call got %s", c.verb, got)
		}
		if f := failedWith(t, "gateway", c.verb, r.ID); f.Exit != exit.NotFound || !strings.Contains(f.Message, "no request with this id") {
			t.Errorf("%s again: %+v", c.verb, f)
		}
	}
	if got := a.executed("bank"); got != "paid 5 to bob\n" {
		t.Errorf("the bank has executed %q", got)
	}
	if f := failedWith(t, "gateway", "approve", "x"); strings.Contains(f.Message, "host:") {
		t.Errorf("approve of an unknown request: %+v", f)
	}
	for _, verb := range []string{"approve", "deny"} {
		if f := failedWith(t, "gateway", verb); !strings.Contains(f.Message, `see "patchbay gateway pending"`) {
			t.Errorf("%s without an ID: %+v", verb, f)
		}
	}
	waiting := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "eve", "Amount": 5}}`)
	id := a.waitPending().Pending[0].ID
	if f := failedWith(t, "gateway", "approve", id, "--session"); !strings.Contains(f.Message, "this client has no session") {
		t.Errorf("approve --session of a client without one: %+v", f)
	}
	mustRun(t, "gateway", "deny", id)
	<-waiting
	for _, args := range [][]string{{"approve", "x", "--session", "--always"}, {"approve", "x", "--yes"},
		{"approve", "x", "--always"}, {"approve", "x", "--session", "--yes"}, {"approve", "x", "y"},
		{"approve"}, {"deny"}, {"revoke"}, {"approve", "--pins", "bank", "--always"}} {
		if f := failedWith(t, append([]string{"gateway"}, args...)...); f.Exit != exit.Usage {
			t.Errorf("%q: %+v", args, f)
		}
	}
}

// A grant approves further requests of a session, or of the caller, until it is revoked.
func TestGrantsByTheOperator(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", askOperator)
	c := gatewayClient(t, a.g, "2025-11-25", false) // without elicitation
	defer c.Close()
	pay := func(c *mcp.Client) <-chan string {
		result := make(chan string, 1)
		go func() {
			r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{"To": "bob", "Amount": 5})
			if err != nil {
				result <- err.Error()
				return
			}
			result <- r.Text()
		}()
		return result
	}
	for _, scope := range []string{"session", "always"} {
		first := pay(c)
		id := a.waitPending().Pending[0].ID
		words := []string{"gateway", "approve", id, "--" + scope}
		if scope == "always" {
			words = append(words, "--yes")
		}
		if o := patchbay(t, "", words...); o.stdout != "Decided about "+id+": "+scope+".\n" {
			t.Errorf("approve --%s: %+v", scope, o)
		}
		if got := <-first; got != "paid 5 to bob" {
			t.Errorf("%s: the approved call got %s", scope, got)
		}
		if got := <-pay(c); got != "paid 5 to bob" {
			t.Errorf("%s: the next call got %s", scope, got)
		}
		grants := jsonOf[grantList](t, "gateway", "grants").Grants
		if len(grants) != 1 || grants[0].Server != "bank" || grants[0].Target != "pay" || grants[0].Scope != scope ||
			grants[0].Channel != "console" || grants[0].Approver != osuser.Name() || grants[0].Rule != "payments" {
			t.Fatalf("grants: %+v", grants)
		}
		grant := grants[0].ID
		want := strings.Join([]string{grant, scope, "bank", "tools/call", "pay", "rule payments", osuser.Name(), "console"}, "\t")
		if o := patchbay(t, "", "gateway", "grants"); !strings.HasPrefix(o.stdout, want+"\t") {
			t.Errorf("grants: %+v", o)
		}
		if revoked := jsonOf[map[string]string](t, "gateway", "revoke", grant); revoked["revoked"] != grant {
			t.Errorf("revoke: %v", revoked)
		}
		if f := failedWith(t, "gateway", "revoke", grant); f.Exit != exit.NotFound || !strings.Contains(f.Message, "no grant has this id") {
			t.Errorf("revoke again: %+v", f)
		}
		after := pay(c)
		if o := patchbay(t, "", "gateway", "deny", a.waitPending().Pending[0].ID); o.status != exit.OK {
			t.Errorf("deny: %+v", o)
		}
		if got := <-after; !strings.Contains(got, "has not approved") {
			t.Errorf("after the grant was revoked, the call got %s", got)
		}
	}
	if o := patchbay(t, "", "gateway", "grants"); o.stdout != "No grants.\n" {
		t.Errorf("grants: %+v", o)
	}
}

// "gateway stop" refuses what waits for approval, and returns when the gateway has ended: another one
// can use its address at once.
func TestStopWithARequestThatWaits(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", askOperator)
	result := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
	id := a.waitPending().Pending[0].ID
	o := patchbay(t, "", "gateway", "stop", "--config", a.config)
	if o.status != exit.OK || !strings.HasPrefix(o.stdout, "The gateway has ended: process ") {
		t.Errorf("stop: %+v", o)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(a.g.url, "http://"), "/mcp")
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Errorf("the address is still in use: %v", err)
	} else {
		l.Close()
	}
	if got := <-result; !strings.Contains(got, "the gateway is ending") {
		t.Errorf("the request got %s", got)
	}
	if f := failedWith(t, "gateway", "approve", id); f.Exit != exit.NotFound {
		t.Errorf("approve after the end: %+v", f)
	}
	if got := a.executed("bank"); got != "" {
		t.Errorf("the bank has executed %q", got)
	}
}

// The audit log has what the operator decides about requests, definitions and grants.
func TestDecisionsOfTheOperatorAreAudited(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", askOperator)
	type admin struct {
		Event, ID, Server, Target string
		Detail                    struct{ Action, ID, Answer string }
	}
	records := func() (all []admin) {
		t.Helper()
		out := audited(t, a.config, "query", "--outcome", "admin", "--json")
		for line := range strings.Lines(out) {
			var r admin
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		return all
	}
	found := func(action, id string) (r admin) {
		t.Helper()
		a.until("the record is written", func() bool {
			all := records()
			n := slices.IndexFunc(all, func(r admin) bool { return r.Detail.Action == action && r.Detail.ID == id })
			if n >= 0 {
				r = all[n]
			}
			return n >= 0
		})
		return r
	}
	for n, c := range []struct{ verb, flag, answer string }{
		{"approve", "--always --yes", "always"}, {"deny", "", "deny"},
	} {
		if n == 1 {
			id := jsonOf[grantList](t, "gateway", "grants").Grants[0].ID
			mustRun(t, "gateway", "revoke", id, "--config", a.config)
			found("revoke grant", id)
		}
		result := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
		id := a.waitPending().Pending[0].ID
		words := []string{"gateway", c.verb, id}
		if c.flag != "" {
			words = append(words, strings.Fields(c.flag)...)
		}
		mustRun(t, words...) // without --config: the gateway records it
		<-result
		r := found(c.verb, id)
		if r.Detail.Answer != c.answer || r.Server != "bank" || r.Target != "pay" {
			t.Fatalf("%s: %+v", c.verb, r)
		}
		out := ""
		a.until("the end of the call is written", func() bool {
			out = audited(t, a.config, "show", r.ID)
			return strings.Count(out, r.ID) > 1
		})
		if strings.Count(out, `"action":"`+c.verb+`"`) != 1 {
			t.Errorf("show: %s, want the call with the decision", out)
		}
	}
}

// A request that waits when the policy changes is refused, waits no more, and cannot be approved.
func TestPendingIsVoidAfterThePolicyChanges(t *testing.T) {
	a := newAttack(t, "", []string{"bank", "fs"}, "", askOperator)
	result := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
	id := a.waitPending().Pending[0].ID
	text, err := os.ReadFile(a.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.config, strings.Replace(string(text), "money leaves", "money moves", 1))
	if got := <-result; !strings.Contains(got, "the policy has changed since the request began") ||
		!strings.Contains(got, `"code":"denied"`) {
		t.Errorf("the call got %s", got)
	}
	if all := jsonOf[pendingList](t, "gateway", "pending").Pending; len(all) != 0 {
		t.Errorf("pending: %+v, want none", all)
	}
	for _, verb := range []string{"approve", "deny"} {
		f := failedWith(t, "gateway", verb, id)
		if f.Exit != exit.NotFound || !strings.Contains(f.Message, "void: the policy has changed") {
			t.Errorf("%s: %+v", verb, f)
		}
	}
	if got := a.executed("bank"); got != "" {
		t.Errorf("the bank has executed %q", got)
	}
}
