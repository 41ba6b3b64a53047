package console_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// printing is an admin API with a line of standard error and a task with a result. It records the requests to the task,
// and the recorded calls that a policy is compared on.
type printing struct {
	http.RoundTripper
	acted *acted
}

type acted struct {
	sync.Mutex
	requests []string
}

// take returns the requests since the last call.
func (a *acted) take() []string {
	a.Lock()
	defer a.Unlock()
	requests := a.requests
	a.requests = nil
	return requests
}

func (a printing) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/tasks/t") || strings.HasSuffix(r.URL.Path, "/policy:compare") {
		a.acted.Lock()
		a.acted.requests = append(a.acted.requests, r.URL.Path)
		a.acted.Unlock()
	}
	const task = `{"id":"t","server":"broken","status":"failed","hasResult":true,"message":"secret message"`
	body := map[string]string{"/servers/broken/stderr": `{"lines":[{"text":"secret stderr"}]}`,
		"/tasks":          `{"tasks":[` + task + `}]}`,
		"/tasks/t:result": task + `,"result":{"content":[{"type":"text","text":"secret result"}]}}`,
	}[strings.TrimPrefix(r.URL.Path, "/admin/v1")]
	if body == "" {
		return a.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// anyServer lists the paths that also serve a server that the person may not use, without the output.
var anyServer = []string{"GET /server", "GET /doctor", "GET /explore", "GET /pins", "GET /policy",
	"POST /policy/explain", "GET /audit"}

// To an operator whose key does not grant a server, the server does not exist, and no page shows its output.
// A new path with the parameter server is refused unless it declares AnyServer and is listed above.
func TestOutputIsForOperatorsWhoMayUseTheServer(t *testing.T) {
	mcptest.NoLeaks(t)
	var sent acted
	ring, book := capture.New(&capture.Options{Always: true}), &logs.Book{}
	book.Add(logs.Entry{Source: logs.Stderr, Server: "broken", Text: "secret log"})
	s := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client {
			return &http.Client{Transport: printing{admin(p).Transport, &sent}}
		}
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: r.Header.Get("X-Person")}, page.RoleOperator, nil
		}
		o.Opens = func(p *mcp.Principal, server string) bool { return p.Subject == "ann" || server != "broken" }
		o.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return nil, errors.New("no connection")
		}
		o.Examine = func(_ context.Context, _ string, d *doctor.Options) (*doctor.Report, error) {
			seen := doctor.Check{Name: "start", Status: doctor.Fail, Seen: []string{"secret environment"}}
			d.End(seen)
			return &doctor.Report{Target: "x", Checks: []doctor.Check{seen}}, nil
		}
		o.Gateway, o.Capture, o.Logs = true, ring, book
	})
	call := &event.Record{Event: event.Intent, Call: "1", Start: time.Now(), Method: "tools/call",
		Public: "broken__secret_tool",
		Action: policy.Action{Server: "broken", Target: "secret_tool", Arguments: []byte("{}")}}
	if err := ring.Recorder(nil).Record(call); err != nil { // a policy can be tested on the call
		t.Fatal(err)
	}
	server := mcp.NewServer("broken", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "secret_tool"},
		func(context.Context, struct{}) (string, error) { return "", nil })
	c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), "broken", "ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "secret_tool", nil); err != nil {
		t.Fatal(err)
	}
	query := fmt.Sprintf("server=broken&tab=stderr&task=t&id=%d", ring.Find(nil, 0, 1)[0].ID) // of all screens
	send := func(route, who, query string) (int, string) {
		method, path, _ := strings.Cut(route, " ")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if method == http.MethodGet {
			path, values = path+"?"+query, nil
		}
		res, text := s.Send(s.Stranger(), method, path, values, "X-Person", who)
		return res.StatusCode, text
	}
	send("POST /doctor/run", "ann", query)
	consoletest.Await(t, "secret environment", func() string {
		_, text := send("GET /doctor", "ann", query)
		return text
	})
	unseen := []string{"secret stderr", "secret environment", "secret log", "secret_tool", "secret message",
		"secret result"}
	for route, role := range s.Console.Paths() {
		if role == page.RoleAnyone || route == "POST /logout" {
			continue
		}
		status, text := send(route, "eve", query)
		if status != http.StatusNotFound && !slices.Contains(anyServer, route) {
			t.Errorf("%s: got %d for a server that eve may not use, want 404", route, status)
		}
		texts := []string{text}
		for _, q := range []string{"server=broken", strings.TrimPrefix(query, "server=broken&"), "q=server:broken"} {
			if route != "GET /stream" && !strings.HasPrefix(route, "POST") {
				_, text := send(route, "eve", q)
				texts = append(texts, text)
			}
		}
		sent.take()
		if _, text := send(route, "eve", "task=t&policy={}&id=1"); strings.HasPrefix(route, "POST") {
			texts = append(texts, text) // no server is named
		}
		if requests := sent.take(); len(requests) > 0 {
			t.Errorf("%s: eve acts on a server that she may not use: %q", route, requests)
		}
		for _, secret := range unseen {
			if strings.Contains(strings.Join(texts, "\n"), secret) {
				t.Errorf("%s shows eve the %s", route, secret)
			}
		}
	}
	for _, route := range []string{"GET /server", "GET /doctor", "GET /logs", "GET /traffic", "GET /traffic/export",
		"GET /tasks", "GET /tasks/result"} {
		_, text := send(route, "ann", query)
		if !slices.ContainsFunc(unseen, func(secret string) bool { return strings.Contains(text, secret) }) {
			t.Errorf("%s shows ann no output: %s", route, text)
		}
	}
}
