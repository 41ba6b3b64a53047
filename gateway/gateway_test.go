package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// upstreams are the servers of a test, by their names in the configuration.
type upstreams struct {
	observer mcp.Observer // may be nil

	mu      sync.Mutex
	callers []*policy.Caller // of connections
	headers []http.Header    // of calls
}

const settings = `"patchbay": {"profiles": {"code": {"servers": ["two"]}}}`

const twoServers = `{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}}, ` + settings + `}`

// newHost opens a host for a configuration, whose servers have the tool whoami with their name.
func (u *upstreams) newHost(t testing.TB, text string) *host.Host {
	t.Helper()
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.callers = append(u.callers, host.CallerFrom(ctx))
			return mcp.InMemory(u.newServer(s.Name)), nil
		},
		Observer: u.observer, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (u *upstreams) newServer(name string) *mcp.Server {
	s := mcp.NewServer(name, "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.headers = append(u.headers, mcp.RequestFrom(ctx).Header)
		return name, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "color", "Which color?", nil)
	})
	return s
}

// sessions returns the distinct sessions of the connections to servers.
func (u *upstreams) sessions() (all []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.callers {
		if !slices.Contains(all, c.Session) {
			all = append(all, c.Session)
		}
	}
	return all
}

var key = gateway.NewKey()

// serve serves a gateway on a loopback address until the test ends, and returns its URL.
func serve(t *testing.T, g *gateway.Gateway) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, g, l)
	return "http://" + l.Addr().String()
}

// serveOn serves a gateway on a listener until the test ends.
func serveOn(t *testing.T, g *gateway.Gateway, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func newGateway(t *testing.T, u *upstreams, text string) *gateway.Gateway {
	t.Helper()
	return gateway.New(u.newHost(t, text), &gateway.Options{Keys: []string{key}, Logger: slog.New(slog.DiscardHandler)})
}

// onlySSE refuses what clients of HTTP+SSE do not send, so that a client uses that transport.
type onlySSE struct{ http.RoundTripper }

func (o onlySSE) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.RawQuery == "" {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return &http.Response{Status: "405", StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1,
			ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return o.RoundTripper.RoundTrip(r)
}

// connect connects a client over HTTP, or over HTTP+SSE.
func connect(t *testing.T, url, revision string, sse bool, header ...string) (*mcp.Client, error) {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	opts := &mcphttp.TransportOptions{Client: &http.Client{Transport: transport}, Header: http.Header{}}
	if sse {
		opts.Client.Transport = onlySSE{transport}
	}
	for i := 0; i < len(header); i += 2 {
		opts.Header.Set(header[i], header[i+1])
	}
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(url, opts), &mcp.ClientOptions{Revision: revision,
		Logger: slog.New(slog.DiscardHandler), Elicit: answer})
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func answer(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"blue"}`)}, nil
}

func toolNames(t *testing.T, c *mcp.Client) (names []string) {
	t.Helper()
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// A downstream is a connection of a client to a gateway.
type downstream struct {
	name    string
	connect func(t *testing.T, g *gateway.Gateway) *mcp.Client
}

// downstreams returns a connection for every revision and transport.
func downstreams() (all []downstream) {
	for _, revision := range mcptest.Revisions() {
		all = append(all, downstream{"HTTP " + revision, func(t *testing.T, g *gateway.Gateway) *mcp.Client {
			c, err := connect(t, serve(t, g)+"/mcp", revision, false, "Authorization", "Bearer "+key)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}}, downstream{"stdio " + revision, func(t *testing.T, g *gateway.Gateway) *mcp.Client {
			client, server := mcp.Pipe()
			done := make(chan error, 1)
			go func() { done <- g.ServeStdio(context.Background(), server, gateway.Route{}) }()
			c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &mcp.ClientOptions{Revision: revision, Elicit: answer})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				c.Close()
				if err := <-done; err != nil {
					t.Errorf("ServeStdio: %v", err)
				}
			})
			return c
		}})
	}
	return append(all, downstream{"HTTP+SSE", func(t *testing.T, g *gateway.Gateway) *mcp.Client {
		c, err := connect(t, serve(t, g)+"/mcp", "2024-11-05", true, "Authorization", "Bearer "+key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}})
}

func TestEveryRevisionAndTransport(t *testing.T) {
	for _, d := range downstreams() {
		t.Run(d.name, func(t *testing.T) {
			mcptest.NoLeaks(t)
			c := d.connect(t, newGateway(t, &upstreams{}, twoServers))
			want := []string{"one__ask", "one__whoami", "two__ask", "two__whoami"}
			if got := toolNames(t, c); !slices.Equal(got, want) {
				t.Errorf("tools %q, want %q", got, want)
			}
			for _, name := range []string{"one", "two"} {
				res, err := c.CallTool(t.Context(), name+"__whoami", nil)
				if err != nil || res.IsError || res.Text() != name {
					t.Errorf("%s__whoami: %+v, %v", name, res, err)
				}
			}
			if c.Revision() < "2025-06-18" {
				return // without elicitation
			}
			if res, err := c.CallTool(t.Context(), "two__ask", nil); err != nil || res.Text() != "blue" {
				t.Errorf("a question: %+v, %v, want the answer", res, err)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	mcptest.NoLeaks(t)
	u := &upstreams{}
	url := serve(t, newGateway(t, u, twoServers))
	for path, want := range map[string][]string{
		"/mcp":        {"one__ask", "one__whoami", "two__ask", "two__whoami"},
		"/mcp/s/one":  {"ask", "whoami"},
		"/mcp/p/code": {"two__ask", "two__whoami"},
	} {
		for _, sse := range []bool{false, true} {
			revision := ""
			if sse {
				revision = "2024-11-05"
			}
			c, err := connect(t, url+path, revision, sse, "Authorization", "Bearer "+key)
			if err != nil {
				t.Fatal(path, err)
			}
			if got := toolNames(t, c); !slices.Equal(got, want) {
				t.Errorf("%s, HTTP+SSE %t: tools %q, want %q", path, sse, got, want)
			}
			if res, err := c.CallTool(t.Context(), want[len(want)-1], nil); err != nil || res.IsError {
				t.Errorf("%s: call: %+v, %v", path, res, err)
			}
		}
	}
	for _, h := range u.headers {
		if h["Authorization"] != nil {
			t.Error("a server got the key")
		}
	}
}

// A gateway of one server serves it with unchanged names, also on /mcp and on stdio.
func TestOneServerHasUnchangedNames(t *testing.T) {
	for _, d := range downstreams() {
		t.Run(d.name, func(t *testing.T) {
			c := d.connect(t, newGateway(t, &upstreams{}, `{"mcpServers": {"one": {"command": "x"}}}`))
			if got, want := toolNames(t, c), []string{"ask", "whoami"}; !slices.Equal(got, want) {
				t.Errorf("tools %q, want %q", got, want)
			}
		})
	}
}

// Sessions and streams are told apart on every transport, and requests without sessions have none.
func TestCallersAreToldApart(t *testing.T) {
	const text = `{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}},
		"patchbay": {"servers": {"one": {"share": "session"}, "two": {"share": "session"}}}}`
	for _, d := range downstreams() {
		t.Run(d.name, func(t *testing.T) {
			u := &upstreams{}
			g := newGateway(t, u, text)
			for range 3 {
				c := d.connect(t, g)
				if got := toolNames(t, c); len(got) != 4 {
					t.Errorf("tools %q, want 4", got)
				}
			}
			want := 3
			if d.name == "HTTP 2026-07-28" {
				want = 1
			}
			got := u.sessions()
			if len(got) != want || slices.Contains(got, "") != (want == 1) {
				t.Errorf("sessions %q, want %d", got, want)
			}
			for _, c := range u.callers {
				if c.Principal != nil {
					t.Errorf("principal %+v, want the local user", c.Principal)
				}
			}
		})
	}
}

// Callers with principals come from middleware around the endpoint.
func TestEndpointHasTheCallersOfMiddleware(t *testing.T) {
	u := &upstreams{}
	g := newGateway(t, u, twoServers)
	for _, subject := range []string{"ann", "bob"} {
		ctx := mcp.WithPrincipal(t.Context(), &mcp.Principal{Issuer: "test", Subject: subject})
		c, err := mcp.Connect(ctx, mcp.InMemory(g.Endpoint(gateway.Route{Server: "one"})), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if res, err := c.CallTool(ctx, "whoami", nil); err != nil || res.Text() != "one" {
			t.Errorf("%+v, %v", res, err)
		}
	}
	var subjects []string
	for _, c := range u.callers {
		subjects = append(subjects, fmt.Sprint(c.Principal.Subject))
	}
	if slices.Sort(subjects); !slices.Equal(slices.Compact(subjects), []string{"ann", "bob"}) {
		t.Errorf("connections for %q, want one for each", subjects)
	}
}

func TestStdioRefusesUnknownRoutes(t *testing.T) {
	g := newGateway(t, &upstreams{}, twoServers)
	for _, r := range []gateway.Route{{Profile: "no"}, {Server: "no"}} {
		_, server := mcp.Pipe()
		if err := g.ServeStdio(t.Context(), server, r); err == nil || !strings.Contains(err.Error(), `"no"`) {
			t.Errorf("%+v: %v, want an error", r, err)
		}
	}
}
