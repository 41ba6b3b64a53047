package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An asking policy asks for the approval of every call.
type asking struct{}

func (asking) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		return policy.Decision{Do: policy.OutcomeAsk, Rule: "deletes", Reason: "removes data"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

func (asking) Needs(policy.ActionKind) policy.Fields { return 0 }
func (asking) Epoch() uint64                         { return 1 }

// A desk is a console over a host whose calls need an approval.
type desk struct {
	*consoletest.Site
	t      *testing.T
	client *mcp.Client
	role   page.Role // of every visitor
}

const hostile = "<b>drop</b>\u202ereversed"

func newDesk(t *testing.T) *desk {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"db": {"command": "x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	db := mcp.NewServer("db", "1", nil)
	yes := true
	mcp.AddTool(db, &mcp.Tool{Name: "drop", Description: hostile,
		Annotations: &mcp.ToolAnnotations{Destructive: &yes}},
		func(_ context.Context, in struct{ Table string }) (string, error) { return "dropped " + in.Table, nil })
	events := gateway.NewEventLog()
	h, err := host.Open(t.Context(), f, &host.Options{Logger: log, Recorder: events.Recorder(nil), Policy: asking{},
		Channels: []policy.Channel{policy.ChannelConsole}, Pins: true,
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(db), nil }})
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(h, &gateway.Options{Logger: log, Admin: gateway.AdminOptions{Version: "1", Events: events}})
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &desk{t: t, role: page.RoleOperator}
	d.Site = consoletest.New(t, func(o *console.Options) {
		o.Admin = g.AdminClient
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			role := d.role
			if r.Header.Get("X-Viewer") != "" {
				role = page.RoleViewer
			}
			return &mcp.Principal{Subject: r.Header.Get("X-Person")}, role, nil
		}
		o.Opens = func(p *mcp.Principal, server string) bool { return p.Subject != "eve" || server != "db" }
	})
	d.client, err = mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{
		Principal: &mcp.Principal{Subject: "bob"}, Session: "s"})), &mcp.ClientOptions{
		Info: mcp.Implementation{Name: "cursor", Version: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.client.Close() })
	return d
}

// A person is a browser of a person.
type person struct {
	*desk
	name   string
	viewer bool
	client *http.Client
}

func (d *desk) person(name string) *person {
	return &person{desk: d, name: name, client: d.Stranger()}
}

func (p *person) send(method, path string, form url.Values) (int, string) {
	header := []string{"X-Person", p.name}
	if p.viewer {
		header = append(header, "X-Viewer", "1")
	}
	res, text := p.Send(p.client, method, path, form, header...)
	return res.StatusCode, html.UnescapeString(text)
}

// cannot fails the test if the Inbox of the person contains a text.
func (p *person) cannot(texts ...string) {
	p.t.Helper()
	_, shown := p.send(http.MethodGet, "/inbox", nil)
	for _, text := range texts {
		if strings.Contains(shown, text) {
			p.t.Errorf("the Inbox of %s contains %q:\n%s", p.name, text, shown)
		}
	}
}

// await fetches a page until it contains a text.
func (p *person) await(path, text string) string {
	p.t.Helper()
	return consoletest.Await(p.t, text, func() string {
		_, shown := p.send(http.MethodGet, path, nil)
		return shown
	})
}

// call calls the tool, and returns a channel with the text of its result.
func (d *desk) call(table string) <-chan string {
	done := make(chan string, 1)
	go func() {
		res, err := d.client.CallTool(context.Background(), "db__drop", json.RawMessage(`{"Table":"`+table+`"}`))
		if err != nil {
			done <- "error: " + err.Error()
			return
		}
		done <- res.Text()
	}()
	return done
}

var approvalID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// waiting returns the id of the request that the page shows.
func waiting(t *testing.T, shown string) string {
	t.Helper()
	m := approvalID.FindStringSubmatch(shown)
	if m == nil {
		t.Fatalf("no approval in\n%s", shown)
	}
	return m[1]
}

// The page shows the arguments for the server, the caller, and the claims of the tool. A decision takes
// effect once, and the second person reads who decided.
func TestApprovalIsDecidedOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	d := newDesk(t)
	ann, eve := d.person("ann"), d.person("eve")
	if shown := ann.await("/inbox", "Nothing waits"); strings.Contains(shown, "<title>(") {
		t.Errorf("the title of an empty inbox has a count:\n%s", shown)
	}
	done := d.call("users")
	shown := ann.await("/inbox", "Approve once")
	for _, want := range []string{`"Table": "users"`, "bob", "cursor 2", "not verified", "deletes", "removes data",
		"may destroy", "pinned", "left", "<title>(1) Inbox", "Approval of db drop for bob", `\u{202e}`} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(shown, "\u202e") {
		t.Error("the page contains a character that changes the direction of text")
	}
	id := waiting(t, shown)
	if status, text := ann.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"maybe"}}); status <
		400 {
		t.Errorf("an unknown answer: status %d, %s", status, text)
	}
	if status, _ := ann.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"once"}}); status !=
		http.StatusSeeOther {
		t.Errorf("decision: status %d", status)
	}
	if got := <-done; got != "dropped users" {
		t.Errorf("the call returned %q", got)
	}
	eve.await("/inbox", "Approved once")
	eve.await("/inbox", `<td class="data">ann</td>`)
	status, text := eve.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"deny"}})
	if status != http.StatusConflict || !strings.Contains(text, "too late: approved once by ann") {
		t.Errorf("late decision: status %d, %s", status, text)
	}
}

// A viewer sees in the Inbox who waits for what, but no arguments, and decides nothing. A grant can
// be revoked.
func TestOnlyOperatorsDecide(t *testing.T) {
	mcptest.NoLeaks(t)
	d := newDesk(t)
	ann, vera := d.person("ann"), d.person("vera")
	vera.viewer = true
	done := d.call("users")
	shown := vera.await("/inbox", "Only operators see them")
	for _, want := range []string{"(1) Inbox", "db</span>", "drop</span>", "bob", "cursor 2", "deletes", "left"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page of a viewer lacks %q:\n%s", want, shown)
		}
	}
	if strings.Contains(shown, "Approve once") || strings.Contains(shown, "users") {
		t.Errorf("a viewer sees buttons, or the arguments:\n%s", shown)
	}
	id := waiting(t, ann.await("/inbox", "Always…"))
	for path, form := range map[string]url.Values{"/inbox/decide": {"id": {id}, "answer": {"once"}},
		"/inbox/answer": {"question": {"1"}, "action": {"accept"}}, "/inbox/revoke": {"id": {"x"}}} {
		if status, _ := vera.send(http.MethodPost, path, form); status != http.StatusForbidden {
			t.Errorf("%s by a viewer: status %d, want 403", path, status)
		}
	}
	eve := d.person("eve") // an operator whose key does not grant the server
	eve.cannot("Approve once", "users")
	if status, _ := eve.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"once"}}); status !=
		http.StatusNotFound {
		t.Errorf("a decision about a server that eve may not use: status %d, want 404", status)
	}
	if shown := ann.await("/inbox?always="+id, "Approve always"); strings.Contains(shown, "Approve once") {
		t.Error("the confirmation offers other answers")
	}
	if status, _ := ann.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"always"}}); status !=
		http.StatusSeeOther {
		t.Errorf("always: status %d", status)
	}
	if got := <-done; got != "dropped users" {
		t.Errorf("the call returned %q", got)
	}
	if got := <-d.call("more"); got != "dropped more" {
		t.Errorf("the call with the grant returned %q", got)
	}
	grant := waiting(t, ann.await("/inbox", "Revoke"))
	revoke := url.Values{"id": {grant}}
	eve.cannot("Revoke")
	if status, _ := eve.send(http.MethodPost, "/inbox/revoke", revoke); status != http.StatusNotFound {
		t.Errorf("revoke for a server that eve may not use: status %d, want 404", status)
	}
	if status, _ := ann.send(http.MethodPost, "/inbox/revoke", revoke); status != http.StatusSeeOther {
		t.Errorf("revoke: status %d", status)
	}
	done = d.call("last")
	id = waiting(t, ann.await("/inbox", "Deny"))
	if status, _ := ann.send(http.MethodPost, "/inbox/decide", url.Values{"id": {id}, "answer": {"deny"}}); status !=
		http.StatusSeeOther {
		t.Errorf("deny: status %d", status)
	}
	if got := <-done; !strings.Contains(got, "not approved") {
		t.Errorf("the denied call returned %q", got)
	}
}

// Questions without a run are answered in the Inbox: a form, a page and a sampling request.
func TestQuestionsWithoutARun(t *testing.T) {
	mcptest.NoLeaks(t)
	questions := &question.Desk{}
	s := consoletest.New(t, func(o *console.Options) { o.Questions = questions })
	v := s.Visitor()
	from := question.Origin{Server: "git"}
	type outcome struct {
		res *mcp.ElicitResult
		err error
	}
	ask := func(p *mcp.ElicitRequestParams) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			res, err := questions.Elicit(context.Background(), from, p)
			done <- outcome{res, err}
		}()
		return done
	}
	id := regexp.MustCompile(`name="question" value="(\d+)"`)
	answer := func(text string, values url.Values) {
		t.Helper()
		m := id.FindStringSubmatch(v.Await("/inbox", text))
		if m == nil {
			t.Fatalf("no question with %q", text)
		}
		values.Set("question", m[1])
		if at := v.Post("/inbox/answer", values); at != "/inbox" {
			t.Errorf("after the answer the browser goes to %s", at)
		}
	}
	done := ask(&mcp.ElicitRequestParams{Message: "Which branch?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"branch":{"type":"string","minLength":2}},"required":["branch"]}`)})
	answer("Which branch?", url.Values{"action": {"accept"}, "open:": {""}, "/branch": {"x"}}) // too short
	answer("Which branch?", url.Values{"action": {"accept"}, "open:": {""}, "/branch": {"main"}})
	if o := <-done; o.err != nil || string(o.res.Content) != `{"branch":"main"}` {
		t.Errorf("got %+v, %v", o.res, o.err)
	}
	done = ask(&mcp.ElicitRequestParams{Mode: "url", URL: "https://xn--80ak6aa92e.com/pay?a=1", Message: "Pay"})
	const address = "https://<strong>xn--80ak6aa92e.com</strong>/pay?a=1"
	if shown := v.Await("/inbox", "Pay"); !strings.Contains(shown, address) ||
		!strings.Contains(shown, "encoded") {
		t.Errorf("the address is not shown whole, or without a warning:\n%s", shown)
	}
	answer("Pay", url.Values{"action": {"decline"}})
	if o := <-done; o.err != nil || o.res.Action != mcp.ElicitDecline {
		t.Errorf("got %+v, %v", o.res, o.err)
	}
	invalid := &mcp.ElicitRequestParams{Mode: "url", URL: "javascript:alert(1)"}
	if o := <-ask(invalid); o.res.Action != mcp.ElicitDecline {
		t.Errorf("an invalid page: got %+v, want a refusal", o.res)
	}
	sampled := make(chan string, 1)
	go func() {
		params := &mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{
			{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Sum up.")}}}}
		res, err := questions.Sample(context.Background(), from, params)
		if err != nil {
			sampled <- err.Error()
			return
		}
		sampled <- res.Text()
	}()
	answer("Sum up.", url.Values{"action": {"accept"}, "text": {"done"}})
	if got := <-sampled; got != "done" {
		t.Errorf("sampled %q", got)
	}
}

// The answer of a program is shown before a person sends it, and only the answer that the page
// shows is sent. A viewer sees that a question waits, but not its content.
func TestAProgramAnswersSampling(t *testing.T) {
	mcptest.NoLeaks(t)
	questions := &question.Desk{}
	n := 0
	questions.SampleWith("llm", func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
		if n++; n == 1 {
			return nil, errors.New("no such model")
		}
		return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m1", StopReason: "maxTokens",
			Content: []mcp.ContentBlock{mcp.Text(fmt.Sprint("summary ", n, " of ", p.MaxTokens))}}, nil
	})
	d := &desk{t: t, role: page.RoleOperator}
	d.Site = consoletest.New(t, func(o *console.Options) {
		o.Questions = questions
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			if r.Header.Get("X-Viewer") != "" {
				return &mcp.Principal{Subject: "vera"}, page.RoleViewer, nil
			}
			return &mcp.Principal{Subject: "ann"}, page.RoleOperator, nil
		}
	})
	ann, vera := d.person("ann"), d.person("vera")
	vera.viewer = true
	ask := func() <-chan *mcp.CreateMessageResult {
		done := make(chan *mcp.CreateMessageResult, 1)
		go func() {
			res, err := questions.Sample(context.Background(), question.Origin{Server: "git"}, &mcp.CreateMessageParams{
				MaxTokens: 7, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser,
					Content: []mcp.ContentBlock{mcp.Text("Sum up the secret plan.")}}}})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		return done
	}
	done := ask()
	id := regexp.MustCompile(`name="question" value="(\d+)"`).FindStringSubmatch(ann.await("/inbox", "Answer with llm"))
	post := func(want int, action, draft string) {
		t.Helper()
		form := url.Values{"question": {id[1]}, "action": {action}, "draft": {draft}}
		if status, text := ann.send(http.MethodPost, "/inbox/answer", form); status != want {
			t.Errorf("%s %s: status %d, want %d: %s", action, draft, status, want, text)
		}
	}
	shown := vera.await("/inbox", "Only operators see its content")
	if strings.Contains(shown, "secret plan") || !strings.Contains(shown, "(1) Inbox") {
		t.Errorf("a viewer sees the content of a question, or no count:\n%s", shown)
	}
	post(http.StatusConflict, "send", "1")
	post(http.StatusSeeOther, "draft", "")
	ann.await("/inbox", "no such model")
	post(http.StatusConflict, "send", "1")
	post(http.StatusSeeOther, "draft", "")
	ann.await("/inbox", "summary 2 of 7")
	post(http.StatusSeeOther, "draft", "")
	ann.await("/inbox", "summary 3 of 7")
	post(http.StatusConflict, "send", "2")
	select {
	case res := <-done:
		t.Errorf("sent without a click: %+v", res)
	default:
	}
	post(http.StatusSeeOther, "send", "3")
	if res := <-done; res == nil || res.Text() != "summary 3 of 7" || res.Model != "m1" ||
		res.StopReason != "maxTokens" {
		t.Errorf("got %+v, want the result of the program", res)
	}
	post(http.StatusConflict, "send", "3")
	done = ask()
	id = regexp.MustCompile(`name="question" value="(\d+)"`).FindStringSubmatch(ann.await("/inbox", "Answer with llm"))
	if status, _ := ann.send(http.MethodPost, "/inbox/answer", url.Values{"question": {id[1]}, "action": {"accept"},
		"text": {"mine"}}); status != http.StatusSeeOther {
		t.Errorf("an answer by text: status %d", status)
	}
	if res := <-done; res == nil || res.Text() != "mine" || res.Model != "human" {
		t.Errorf("got %+v, want the text of the person", res)
	}
}

// Servers and apps ask a bounded number of questions of a bounded length.
func TestQuestionsAreBounded(t *testing.T) {
	mcptest.NoLeaks(t)
	for name, test := range map[string]struct {
		origin question.Origin
		text   string
		want   string
	}{
		"of a run":      {question.Origin{Run: 1}, "?", "the run asked 50 questions already: may ask at most 50"},
		"without a run": {question.Origin{}, "?", "50 questions wait for an answer already: at most 50 may wait"},
		"too long": {question.Origin{}, strings.Repeat("x", 1<<20),
			"the question has 1048578 bytes: must have at most 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			desk, refused := &question.Desk{}, make(chan error, 51)
			var wait sync.WaitGroup
			for range 51 {
				wait.Go(func() {
					_, err := desk.Elicit(ctx, test.origin, &mcp.ElicitRequestParams{Message: test.text,
						RequestedSchema: json.RawMessage("{}")})
					refused <- err
				})
			}
			if err := <-refused; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			cancel()
			wait.Wait()
		})
	}
}
