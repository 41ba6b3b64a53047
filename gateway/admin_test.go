package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An adminTest is a gateway whose admin API is served on a socket.
type adminTest struct {
	t       *testing.T
	gateway *gateway.Gateway
	host    *host.Host
	socket  string
	client  *http.Client

	recorder event.Recorder // of the events

	mu      sync.Mutex // guards records
	records []event.Record
}

// Record keeps a record.
func (a *adminTest) Record(r *event.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, *r)
	return nil
}

// newAdmin serves the admin API of a gateway, whose options prepare may change.
func newAdmin(t *testing.T, text string, prepare func(*host.Options, *gateway.AdminOptions)) *adminTest {
	t.Helper()
	return newAdminWith(t, text, prepare, gateway.Options{})
}

// newAdminWith is newAdmin for a gateway with other options.
func newAdminWith(t *testing.T, text string, prepare func(*host.Options, *gateway.AdminOptions),
	gopts gateway.Options) *adminTest {
	t.Helper()
	a := &adminTest{t: t}
	u := &upstreams{}
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	events := gateway.NewEventLog()
	opts := &host.Options{Logger: slog.New(slog.DiscardHandler),
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(u.newServer(s.Name)), nil
		}}
	a.recorder = events.Recorder(a)
	opts.Recorder = a.recorder
	admin := gateway.AdminOptions{Version: "1", URL: "http://127.0.0.1:7777/mcp", Events: events}
	if prepare != nil {
		prepare(opts, &admin)
	}
	if a.host, err = host.Open(t.Context(), f, opts); err != nil {
		t.Fatal(err)
	}
	gopts.Admin, gopts.Logger = admin, cmp.Or(gopts.Logger, opts.Logger)
	a.gateway = gateway.New(a.host, &gopts)
	dir, err := os.MkdirTemp("", "pb") // t.TempDir has too long names for sockets
	if err != nil {
		t.Fatal(err)
	}
	a.socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.gateway.ServeAdmin(ctx, l) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", a.socket)
	}}
	a.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("ServeAdmin: %v", err)
		}
		if err := a.host.Close(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return a
}

// send sends a request and returns the status and the body.
func (a *adminTest) send(method, path, body string, header ...string) (int, []byte) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, "http://localhost/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	a.check(method, path, res, text)
	return res.StatusCode, text
}

// get decodes the response to a request that must succeed.
func (a *adminTest) get(method, path, body string, v any) {
	a.t.Helper()
	status, text := a.send(method, path, body)
	if status != http.StatusOK {
		a.t.Fatalf("%s %s: status %d: %s", method, path, status, text)
	}
	if err := json.Unmarshal(text, v); err != nil {
		a.t.Fatal(err)
	}
}

// refused checks that a request has a problem with the code.
func (a *adminTest) refused(method, path, body string, status int, code string, header ...string) {
	a.t.Helper()
	var p gateway.Problem
	got, text := a.send(method, path, body, header...)
	if err := json.Unmarshal(text, &p); err != nil || got != status || p.Status != status || p.Code != code ||
		p.Title != http.StatusText(status) || p.Detail == "" {
		a.t.Errorf("%s %s: got status %d: %s, want %d %s", method, path, got, text, status, code)
	}
}

// A document is the OpenAPI document.
type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func (a *adminTest) document() *document {
	res, err := a.client.Get("http://localhost/admin/v1/openapi.json")
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	d := &document{}
	if err := json.NewDecoder(res.Body).Decode(d); err != nil {
		a.t.Fatal(err)
	}
	return d
}

// check validates a response against the document.
func (a *adminTest) check(method, path string, res *http.Response, text []byte) {
	a.t.Helper()
	d := a.document()
	if res.StatusCode >= 400 {
		validate(a.t, method+" "+path, d.Components.Schemas["Problem"], text)
		if kind := res.Header.Get("Content-Type"); kind != "application/problem+json" {
			a.t.Errorf("%s %s: Content-Type %q, want application/problem+json", method, path, kind)
		}
		return
	}
	path, _, _ = strings.Cut(path, "?")
	for template, operations := range d.Paths {
		operation, ok := operations[strings.ToLower(method)]
		if !ok || !pathMatches(template, path) {
			continue
		}
		validate(a.t, method+" "+path, operation.Responses["200"].Content["application/json"].Schema, text)
		return
	}
	a.t.Errorf("%s %s is not in the document", method, path)
}

// pathMatches reports whether a path is one of a template.
func pathMatches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(w, g string) bool {
		before, after, variable := strings.Cut(w, "{")
		_, verb, _ := strings.Cut(after, "}")
		if !variable {
			return w == g
		}
		return strings.HasPrefix(g, before) && strings.HasSuffix(g, verb) && (verb != "" || !strings.Contains(g, ":"))
	})
}

func validate(t *testing.T, what string, raw json.RawMessage, text []byte) {
	t.Helper()
	s, err := jsonschema.Compile(raw)
	if err == nil {
		err = s.Validate(bytes.TrimSpace(text))
	}
	if err != nil {
		t.Errorf("%s: response %s\ndoes not match its schema: %v", what, text, err)
	}
}

// The admin API shows the condition of servers, and stops and restarts them.
func TestAdminShowsAndControlsServers(t *testing.T) {
	a := newAdmin(t, twoServers, nil)
	var status struct {
		PID      int
		Profiles []string
		Servers  map[string]int
	}
	a.get("GET", "/status", "", &status)
	if status.PID != os.Getpid() || status.Servers["off"] != 2 || !slices.Equal(status.Profiles, []string{"code"}) {
		t.Errorf("status %+v", status)
	}
	var one struct {
		Name, State, Revision string
		Starts                int
		Instances             []struct{ ID string }
	}
	a.get("POST", "/servers/one:restart", "", &one)
	if one.State != "ready" || one.Revision != "2026-07-28" || len(one.Instances) != 1 {
		t.Errorf("after restart: %+v", one)
	}
	a.get("POST", "/servers/one:stop", "", &one)
	if one.State != "stopped" {
		t.Errorf("after stop: %+v", one)
	}
	var all struct {
		Servers []struct{ Name, State string }
	}
	a.get("GET", "/servers", "", &all)
	if fmt.Sprint(all) != "{[{one stopped} {two off}]}" {
		t.Errorf("servers %v", all)
	}
	a.get("GET", "/servers/one", "", &one)
	var lines struct{ Lines []struct{ Text string } }
	a.get("GET", "/servers/one/stderr?after=3&limit=5", "", &lines)

	a.mu.Lock()
	defer a.mu.Unlock()
	var actions []string
	for _, r := range a.records {
		if r.Event == event.Admin {
			actions = append(actions, r.Server+" "+string(r.Detail))
		}
	}
	want := []string{`one {"action":"restart"}`, `one {"action":"stop"}`} // one of each action
	if !slices.Equal(actions, want) {
		t.Errorf("records %q, want %q", actions, want)
	}
}
