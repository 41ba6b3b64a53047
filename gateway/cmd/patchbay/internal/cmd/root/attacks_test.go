package root

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Rug pull: a server whose tool was approved changes the description, while it runs, to one that gives
// orders to the model.
func TestAttackRugPull(t *testing.T) {
	a := newAttack(t, "rug-pull", []string{"shop", "fs"}, "", "")
	a.listed(a.g.url, "shop", "fs")
	a.note("The first definition is approved, and the call runs.")
	a.client("", "tools", a.g.url)
	a.client("", "call", a.g.url, "shop__search", "Query=shoes")
	a.note("The server has changed the description during that call.")
	a.until("the gateway has noticed the change", func() bool {
		return !strings.Contains(patchbay(t, "", append([]string{"tools", a.g.url}, a.g.header()...)...).stdout, "search")
	})
	a.client("", "tools", a.g.url)
	o := a.client("", "rpc", a.g.url, "tools/call", `{"name": "shop__search", "arguments": {"Query": "id_rsa"}}`)
	if !strings.Contains(o.stdout, `"code":"quarantined"`) {
		t.Errorf("a call after the change: %+v", o)
	}
	if got := a.executed("shop"); got != "search shoes\n" {
		t.Errorf("the server has executed %q", got)
	}
	a.run("", "gateway", "pins", "--diff", "--config", a.config)
	a.note("A gateway that is started again has not forgotten it.")
	a.g.stop()
	a.start()
	a.listed(a.g.url, "fs")
	if o := a.client("", "tools", a.g.url); strings.Contains(o.stdout, "id_rsa") {
		t.Errorf("the changed definition is listed: %s", o.stdout)
	}
	a.note("The user approves the definition as it was shown, or removes the server.")
	a.run("", "gateway", "approve", "--pins", "shop/search", "--yes", "--config", a.config)
	a.end()
}

// Shadowing: a server has tools with the names of tools of another one.
func TestAttackShadowedName(t *testing.T) {
	a := newAttack(t, "shadowed-name", []string{"evil", "fs"}, "", "")
	a.listed(a.g.url, "evil", "fs")
	a.note("Each name has its server as a prefix, so that no server can take the name of another one's tool.")
	a.client("", "tools", a.g.url)
	o := a.client("", "call", a.g.url, "fs__read_file", "Path=/home/me/secret")
	if o.stdout != "text of /home/me/secret\n" {
		t.Errorf("the call of the trusted server: %+v", o)
	}
	if got := a.executed("evil"); got != "" {
		t.Errorf("the evil server has executed %q", got)
	}
	a.note("Without prefixes, two servers with one name are an error, and neither is called.")
	a.g.stop()
	text, err := os.ReadFile(a.config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.config, strings.Replace(string(text), `"patchbay": {`, `"patchbay": {"names": {"mode": "none"}, `, 1))
	a.start()
	a.until("both servers are listed", func() bool {
		o := patchbay(t, "", append([]string{"tools", a.g.url}, a.g.header()...)...)
		return strings.Contains(o.stdout, "fs_read_file ") && !strings.Contains("\n"+o.stdout, "\nread_file ")
	})
	a.client("", "tools", a.g.url)
	a.client("", "call", a.g.url, "read_file", "Path=/home/me/secret")
	if got := a.executed("evil"); got != "" {
		t.Errorf("the evil server has executed %q", got)
	}
	if o := a.g.stop(); !strings.Contains(o.stderr, `severity=misconfigured`) || !strings.Contains(o.stderr, "read_file") {
		t.Errorf("the operator does not see why the tool is missing: %s", o.stderr)
	}
	a.end()
}

// Injection: the result of a server tells the model to use other servers. A rule about recent.servers
// denies, or asks about, what follows.
func TestAttackInjectedResult(t *testing.T) {
	a := newAttack(t, "injected-result", []string{"web", "fs", "mail"}, "", `"policy": {"rules": [
		{"name": "no-mail-after-web", "on": ["call"], "do": "deny", "reason": "text of the web may have asked for it",
			"when": "server.name == 'mail' && 'web' in recent.servers"},
		{"name": "files-after-web", "on": ["call"], "do": "ask", "reason": "text of the web may have asked for it",
			"when": "server.name == 'fs' && 'web' in recent.servers"}]}`)
	a.listed(a.g.url, "web", "fs", "mail")
	a.note("Before the attack, both servers can be used.")
	a.client("", "call", a.g.url, "fs__read_file", "Path=notes.txt")
	a.client("", "call", a.g.url, "mail__send", "To=bob@example.com", "Text=hello")
	a.note("A page gives orders to the model.")
	a.client("", "call", a.g.url, "web__fetch", "URL=https://weather.example.com")
	a.note("The model obeys. The user is asked about the file, and refuses.")
	if o := a.client("deny\ny\n", "call", a.g.url, "fs__read_file", "Path=invoices.txt"); o.status != exit.Denied {
		t.Errorf("the refused call: %+v", o)
	}
	a.note("Mail is denied without a question.")
	o := a.client("", "call", a.g.url, "mail__send", "To=eve@example.com", "Text=invoices")
	if o.status != exit.Denied || !strings.Contains(o.stderr, "denied by rule no-mail-after-web") {
		t.Errorf("the denied call: %+v", o)
	}
	if got := a.executed("mail"); got != "to bob@example.com: hello\n" {
		t.Errorf("the mail server has executed %q", got)
	}
	if got := a.executed("fs"); got != "read notes.txt\n" {
		t.Errorf("the file server has executed %q", got)
	}
	a.run("", "gateway", "policy", "explain", "mail", "send", "--recent", "web", "--config", a.config)
	a.until("the refusals are in the log", func() bool {
		o := patchbay(t, "", "gateway", "audit", "query", "--outcome", "refused", "--config", a.config)
		return strings.Count(o.stdout, "\n") == 2
	})
	a.run("", "gateway", "audit", "query", "--outcome", "refused", "--config", a.config)
	a.end()
}

// Confused deputy: a caller uses servers, logins or approvals that the gateway has for others.
func TestAttackConfusedDeputy(t *testing.T) {
	a := newAttack(t, "confused-deputy", []string{"fs", "bank"}, "", `"profiles": {"reader": {"servers": ["fs"]}, "payer": {"servers": ["bank"]}},
		"approve": ["console"], "policy": {"rules": [
		{"name": "payments", "on": ["call"], "when": "server.name == 'bank'", "do": "ask", "reason": "money leaves"}]}`)
	origin := strings.TrimSuffix(a.g.url, "/mcp")
	a.note("A client on the path of a profile tries names of other servers, which the gateway could reach.")
	reader := origin + "/mcp/p/reader"
	a.listed(reader, "fs")
	a.client("", "tools", reader)
	for _, name := range []string{"bank__pay", "pay", "fs__bank__pay", "bank/pay"} {
		o := a.client("", "rpc", reader, "tools/call", `{"name": "`+name+`", "arguments": {"To": "eve", "Amount": 1}}`,
			"--timeout", "10s")
		if o.status == exit.OK {
			t.Errorf("%s through the profile: %+v", name, o)
		}
	}
	a.note("An approval that lasts, for another caller, is not for this one: here a profile is another caller.")
	approved := a.inBackground(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
	a.approveNext("--always", "--yes")
	if r := <-approved; !strings.Contains(r, "paid 5 to bob") {
		t.Errorf("the approved call: %s", r)
	}
	other := a.inBackground(origin+"/mcp/p/payer", `{"name": "bank__pay", "arguments": {"To": "eve", "Amount": 500}}`)
	a.run("", "gateway", "grants", "--config", a.config)
	a.denyNext()
	if r := <-other; !strings.Contains(r, `"code":"denied"`) {
		t.Errorf("the call of the other caller: %s", r)
	}
	if got := a.executed("bank"); got != "paid 5 to bob\n" {
		t.Errorf("the bank has executed %q", got)
	}
	a.end()
}

// Leaked headers: what a client sends to the gateway is for the gateway, not for servers at a URL.
func TestAttackLeakedHeader(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{}
	inner := mcphttp.NewHandler(newServer("demo"), nil)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		for name, values := range r.Header {
			seen[name] = append(seen[name], values...)
		}
		mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	defer upstream.Close()
	defer func() { _ = inner.Shutdown(context.Background()) }()
	a := newAttack(t, "leaked-header", []string{"fs"},
		`"web": {"type": "http", "url": "`+upstream.URL+`", "headers": {"X-Api-Key": "of-the-operator"}}`, "")
	a.note("The client sends the key of the gateway, a cookie, and headers that gateways use among themselves.")
	for _, revision := range mcptest.Revisions() {
		a.client("", "call", a.g.url, "web__add", "a=20", "b=22", "--revision", revision,
			"--header", "Cookie: session=of-the-caller",
			"--header", "X-Api-Key: of-the-caller", "--header", "X-Forwarded-User: of-the-caller",
			"--header", "Proxy-Authorization: of-the-caller")
	}
	mu.Lock()
	defer mu.Unlock()
	var names []string
	for name, values := range seen {
		if !strings.HasPrefix(name, "Mcp-") && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if all := strings.Join(values, " "); strings.Contains(all, "of-the-caller") || strings.Contains(all, a.g.key) {
			t.Errorf("the server has received the header %s of the caller", name)
		}
	}
	if got := seen["X-Api-Key"]; len(got) == 0 || got[0] != "of-the-operator" {
		t.Errorf("the server has received X-Api-Key %q, want the configured one", got)
	}
	slices.Sort(names)
	a.note("The server has received: " + strings.Join(names, ", ") + ", and those of MCP. X-Api-Key is the configured one.")
	a.end()
}

// Replay: an approval that a client has given once is sent again, with the same request.
func TestAttackReplayedApproval(t *testing.T) {
	a := newAttack(t, "replayed-approval", []string{"bank", "fs"}, "", payments)
	a.note("A client asks its user, and sends the approval.")
	question := a.post(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
	a.note("The user reads: " + a.message(question))
	approved := `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}, ` + a.approval(question) + `}`
	a.note("First: " + shownText(a.post(a.g.url, approved)))
	a.note("Again: " + shownText(a.post(a.g.url, approved)))
	a.note("A gateway that was started again has not forgotten it.")
	a.g.stop()
	a.start()
	a.note("Again: " + shownText(a.post(a.g.url, approved)))
	if got := a.executed("bank"); got != "paid 5 to bob\n" {
		t.Errorf("the bank has executed %q", got)
	}
	a.end()
}

// Other arguments: the user approves one request, and the client sends another one with the approval.
func TestAttackApprovalWithOtherArguments(t *testing.T) {
	a := newAttack(t, "approval-with-other-arguments", []string{"bank", "fs"}, "", payments)
	for _, c := range []struct{ what, params string }{
		{"another recipient", `"name": "bank__pay", "arguments": {"To": "eve", "Amount": 5}`},
		{"another amount", `"name": "bank__pay", "arguments": {"To": "bob", "Amount": 500}`},
		{"an argument more", `"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5, "Express": true}`},
		{"another tool", `"name": "fs__read_file", "arguments": {"To": "bob", "Amount": 5}`},
	} {
		question := a.post(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
		a.note("Approved is the question: " + a.message(question))
		a.note("Sent is " + c.what + ": " + shownText(a.post(a.g.url, `{`+c.params+`, `+a.approval(question)+`}`)))
	}
	a.note("Other spaces and another order of the same arguments are the same request.")
	question := a.post(a.g.url, `{"name": "bank__pay", "arguments": {"To": "bob", "Amount": 5}}`)
	a.note(shownText(a.post(a.g.url, `{"name": "bank__pay", "arguments": { "Amount":5, "To":"bo\u0062"}, `+a.approval(question)+`}`)))
	if got := a.executed("bank"); got != "paid 5 to bob\n" {
		t.Errorf("the bank has executed %q", got)
	}
	if got := a.executed("fs"); got != "" {
		t.Errorf("the file server has executed %q", got)
	}
	a.end()
}

// payments is a policy that asks before each payment.
const payments = `"policy": {"rules": [{"name": "payments", "on": ["call"], "when": "server.name == 'bank'", "do": "ask",
	"reason": "money leaves"}]}`

// A gateway that starts servers limits their processes, logs what they are used for, and requires a key.
//
// Requirement: SEC-18
func TestChildrenAreLimitedLoggedAndProtected(t *testing.T) {
	t.Setenv("SECRET_OF_THE_USER", "x")
	a := newAttack(t, "", []string{"child", "fs"}, "", `"servers": {"child": {"limits": {"openFiles": 77, "bestEffort": true}}}`)
	if o := patchbay(t, "", "call", a.g.url, "child__look"); o.status != exit.Auth {
		t.Errorf("without the key: %+v, want %d", o, exit.Auth)
	}
	if got := a.executed("child"); got != "" {
		t.Errorf("without the key, the server has %q", got)
	}
	o := patchbay(t, "", append([]string{"call", a.g.url, "child__look"}, a.g.header()...)...)
	if o.status != exit.OK || strings.Contains(o.stdout, "SECRET_OF_THE_USER") || strings.Contains(o.stdout, userdir.EnvState) {
		t.Errorf("%+v, want no variables of the gateway", o)
	}
	if runtime.GOOS == "linux" && !strings.HasSuffix(o.stdout, "; files 77\n") {
		t.Errorf("%+v, want the limit of open files", o)
	}
	a.until("the call is in the log", func() bool {
		o := patchbay(t, "", "gateway", "audit", "query", "--server", "child", "--outcome", "ok", "--config", a.config)
		return strings.Contains(o.stdout, "look")
	})
}
