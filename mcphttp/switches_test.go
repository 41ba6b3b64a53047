package mcphttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestOnlyTheRevisionsOfTheServerAreAccepted(t *testing.T) {
	sessions := mcp.NewServer("s", "1", &mcp.ServerOptions{Revisions: []string{june2025, march2025}})
	f := start(t, sessions, nil)
	got := f.do(http.MethodPost, initializeBody(november2025))
	if got.status != 200 || !strings.Contains(got.body, `"protocolVersion":"`+june2025+`"`) {
		t.Errorf("initialize: got %d %s, want the newest accepted revision", got.status, got.body)
	}
	got = f.modern("server/discover", "")
	if got.status != 400 || got.code() != driver.CodeUnsupportedProtocolVersion ||
		!strings.Contains(got.body, `"supported":["`+june2025+`","`+march2025+`"]`) {
		t.Errorf("server/discover: got %d %s, want an unsupported version", got.status, got.body)
	}

	f = start(t, mcp.NewServer("s", "1", &mcp.ServerOptions{Revisions: []string{modern}}), nil)
	got = f.do(http.MethodPost, initializeBody(november2025))
	if got.status != 400 || got.code() != driver.CodeUnsupportedProtocolVersion {
		t.Errorf("initialize: got %d %s, want an unsupported version", got.status, got.body)
	}
	if got := f.modern("server/discover", ""); !strings.Contains(got.body, `"supportedVersions":["`+modern+`"]`) {
		t.Errorf("server/discover: got %d %s", got.status, got.body)
	}
}

// A version header that the server does not accept is refused in a session, too; an accepted one that
// differs from the session's is not.
//
// Requirement: LHTTP-35
func TestSessionsRefuseVersionHeadersOfOtherRevisions(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Revisions: []string{june2025, march2025}})
	forEach(t, []string{june2025, march2025}, func(t *testing.T, revision string) {
		f := start(t, s, nil)
		for version, want := range map[string]int{june2025: 200, march2025: 200, "": 200, november2025: 400,
			"2024-11-05": 400} {
			session := f.initialize(revision)
			headers := []string{"Mcp-Session-Id: " + session.id, "MCP-Protocol-Version: " + version}
			got := f.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, headers...)
			if got.status != want || want == 400 && (got.code() != driver.CodeUnsupportedProtocolVersion ||
				!strings.Contains(got.body, `"supported":["`+june2025+`","`+march2025+`"]`)) {
				t.Errorf("POST with %s: got %d %s, want %d", version, got.status, got.body, want)
			}
			if got := f.do(http.MethodDelete, "", headers...); (got.status == 400) != (want == 400) {
				t.Errorf("DELETE with %s: got %d %s", version, got.status, got.body)
			}
		}
	})
}

func TestMethodsCanBeRefused(t *testing.T) {
	for name, test := range map[string]struct {
		opts             mcphttp.SessionOptions
		sse, get, delete int
		allow            string
	}{
		"HTTP+SSE": {mcphttp.SessionOptions{NoHTTPSSE: true}, 405, 200, 204, "POST, GET, DELETE, OPTIONS"},
		"GET":      {mcphttp.SessionOptions{NoGET: true}, 405, 405, 204, "POST, DELETE, OPTIONS"},
		"DELETE":   {mcphttp.SessionOptions{NoDELETE: true}, 200, 200, 405, "POST, GET, OPTIONS"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), &mcphttp.Options{Sessions: test.opts})
				s := f.initialize(november2025)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sse := f.open(f.request(ctx, http.MethodGet, ""))
				get := f.open(s.get(ctx))
				for what, pair := range map[string][2]int{
					"HTTP+SSE": {sse.StatusCode, test.sse},
					"GET":      {get.StatusCode, test.get},
					"DELETE":   {f.do(http.MethodDelete, "", s.headers...).status, test.delete},
				} {
					if pair[0] != pair[1] {
						t.Errorf("%s: got status %d, want %d", what, pair[0], pair[1])
					}
				}
				if got := f.do(http.MethodPut, "").header.Get("Allow"); got != test.allow {
					t.Errorf("Allow is %q, want %q", got, test.allow)
				}
			})
		})
	}
}

func TestStatelessHandlersServeClientsWithoutSessions(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		f := start(t, newStatelessServer(),
			&mcphttp.Options{Logger: discardLogger, Sessions: mcphttp.SessionOptions{Stateless: true}})
		got := f.do(http.MethodPost, initializeBody(revision))
		if got.status != 200 || got.header.Get("Mcp-Session-Id") != "" || strings.Contains(got.body, "listChanged") ||
			strings.Contains(got.body, "logging") || !strings.Contains(got.body, `"tools":{}`) {
			t.Errorf("initialize: got %d %s %s", got.status, got.header, got.body)
		}
		headers := []string{"MCP-Protocol-Version: " + revision}
		if revision == march2025 {
			headers = nil
		}
		post := func(body string) response { return f.do(http.MethodPost, body, headers...) }
		if got := post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != 200 ||
			!strings.Contains(got.body, `"result":{}`) {
			t.Errorf("ping: got %d %s", got.status, got.body)
		}
		got = post("[" + callBody(1, "revision") + `,{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
		if revision == march2025 && strings.Count(got.body, `"result":`) != 2 ||
			revision != march2025 && got.status != 400 {
			t.Errorf("batch: got %d %s", got.status, got.body)
		}
		if got := post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
			t.Errorf("initialized: got %d %s", got.status, got.body)
		}
		if got := post(callBody(1, "revision")); !strings.Contains(got.body, revision+" \\\"\\\"") {
			t.Errorf("tools/call: got %d %s, want revision %s", got.status, got.body, revision)
		}
		if got := post(callBody(1, "ask")); got.code() != mcp.CodeInvalidRequest {
			t.Errorf("a question: got %d %s, want an error", got.status, got.body)
		}
		if got := post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`); got.code() != mcp.CodeMethodNotFound {
			t.Errorf("logging/setLevel: got %d %s", got.status, got.body)
		}
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if got := f.do(method, ""); got.status != 405 || got.header.Get("Allow") != "POST, OPTIONS" {
				t.Errorf("%s: got %d %s", method, got.status, got.header)
			}
		}
		if n := f.handler.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are open", n)
		}
		c, err := mcp.Connect(t.Context(), f.transport(nil), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.CallTool(t.Context(), "revision", nil); err != nil {
			t.Error(err)
		}
	})
}

// Spec: basic/transports#protocol-version-header: a version that is not supported has status 400.
func TestStatelessHandlersAcceptOnlyTheRevisionsOfTheServer(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Revisions: []string{june2025}})
		f := start(t, s, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Stateless: true}})
		got := f.do(http.MethodPost, ping, "MCP-Protocol-Version: "+revision)
		if revision == june2025 && got.status != 200 ||
			revision != june2025 && (got.status != 400 || got.code() != driver.CodeUnsupportedProtocolVersion) {
			t.Errorf("got %d %s", got.status, got.body)
		}
		got = f.do(http.MethodPost, initializeBody(revision))
		if got.status != 200 || !strings.Contains(got.body, `"protocolVersion":"`+june2025+`"`) {
			t.Errorf("initialize: got %d %s, want %s", got.status, got.body, june2025)
		}
		if got := f.do(http.MethodPost, ping); got.status != 200 {
			t.Errorf("without the header: got %d %s", got.status, got.body)
		}
		if got := f.modern("server/discover", ""); got.status != 400 {
			t.Errorf("server/discover: got %d %s, want an unsupported version", got.status, got.body)
		}
	})
}

// The id of an event says that the client can resume the stream, which needs GET.
func TestWithoutGETEventsHaveNoIDs(t *testing.T) {
	for id, opts := range map[bool]mcphttp.SessionOptions{true: {NoDELETE: true}, false: {NoGET: true}} {
		forEach(t, streamableRevisions, func(t *testing.T, revision string) {
			s := mcp.NewServer("s", "1", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "log"}, func(ctx context.Context, _ map[string]any) (string, error) {
				mcp.Logger(ctx).Error("sent")
				if err := mcphttp.CloseStream(ctx, 0); !id && !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("CloseStream: got %v", err)
				}
				return "done", nil
			})
			f := start(t, s, &mcphttp.Options{Sessions: opts})
			got := f.do(http.MethodPost, callBody(1, "log"), f.initialize(revision).headers...)
			if strings.Contains(got.body, "id: ") != id || !strings.Contains(got.body, "sent") ||
				!id && !strings.Contains(got.body, "done") {
				t.Errorf("%v: got %d %s", id, got.status, got.body)
			}
		})
	}
}

func TestEndHasTheReason(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		var causes []error
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{
			End: func(_ string, cause error) { causes = append(causes, cause) },
		}})
		s := f.initialize(revision)
		f.initialize(revision)
		f.do(http.MethodDelete, "", s.headers...)
		if err := f.handler.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(causes) != 2 || !errors.Is(causes[0], mcp.ErrClosed) || !errors.Is(causes[1], mcp.ErrShutdown) {
			t.Errorf("got %v, want the reasons of DELETE and Shutdown", causes)
		}
	})
}

func newStatelessServer() *mcp.Server {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(s, &mcp.Tool{Name: "revision"}, func(ctx context.Context, _ map[string]any) (string, error) {
		mcp.Logger(ctx).Error("not sent")
		r := mcp.RequestFrom(ctx)
		return r.Revision() + ` "` + string(r.LogLevel()) + `"`, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ map[string]any) (bool, error) {
		return mcp.Ask[bool](ctx, "a", "Sure?", nil)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ map[string]any) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	return s
}

func TestStatelessHandlersCancelCallsOfLostClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newStatelessServer(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Stateless: true}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.client.Do(f.request(ctx, http.MethodPost, callBody(1, "hang"),
			"MCP-Protocol-Version: "+november2025))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		synctest.Wait()
		if stats := f.handler.Stats(); stats.InFlight != 0 || stats.Sessions != 0 {
			t.Errorf("got %+v, want no requests", stats)
		}
	})
}

func TestBeginAndEndOfSessionsAreReported(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, revision string) {
		var events []string
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{
			IdleTimeout: time.Minute, InitTimeout: time.Minute,
			Begin: func(ctx context.Context, id string) {
				events = append(events, "begin "+mcp.PrincipalFrom(ctx).Subject+" "+id)
			},
			End: func(id string, cause error) {
				if !errors.Is(cause, mcp.ErrClosed) {
					t.Errorf("the cause is %v", cause)
				}
				events = append(events, "end "+id)
				panic("contained")
			},
		}})
		if revision == november2024 {
			ctx, cancel := context.WithCancel(t.Context())
			c := f.openSSE(ctx, "Authorization: ada")
			c.post(initializeBody(revision))
			c.next()
			cancel()
		} else {
			f.initialize(revision, "Authorization: ada")
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		f.do(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`) // fails
		if len(events) != 2 || !strings.HasPrefix(events[0], "begin ada ") ||
			events[1] != "end "+strings.TrimPrefix(events[0], "begin ada ") {
			t.Errorf("got %q", events)
		}
	})
}

func TestStatsCountRequestsAndRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newStatelessServer(), &mcphttp.Options{
			Logger: discardLogger, Sessions: mcphttp.SessionOptions{MaxPerPrincipal: 1},
		})
		s := f.initialize(november2025, "Authorization: ada")
		f.do(http.MethodPost, initializeBody(november2025), "Authorization: ada")
		f.do(http.MethodPut, "")
		f.modern("unknown/method", "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.open(s.get(ctx))
		body, headers := modernCall("tools/call", `"name":"hang"`)
		go func() { _, _ = f.client.Do(f.request(ctx, http.MethodPost, body, headers...)) }()
		f.modernStream(ctx, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`).Next()
		synctest.Wait()
		got := f.handler.Stats()
		if got.Sessions != 1 || got.Streams != 1 || got.Subscriptions != 1 || got.InFlight != 1 {
			t.Errorf("got %+v, want one of each", got)
		}
		if len(got.Refused) != 3 || got.Refused["Not Found"] != 1 ||
			got.Refused["too many sessions of one caller"] != 1 || got.Refused["Method Not Allowed"] != 1 {
			t.Errorf("got the refusals %v", got.Refused)
		}
	})
}

// Credentials are not sent in the clear to another machine unless InsecureHTTP is set. The address
// 192.0.2.1 is reserved for documentation.
func TestCredentialsAreNotSentInTheClear(t *testing.T) {
	sent := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") })
	for _, test := range []struct {
		url, name string
		insecure  bool
		refused   bool
	}{
		{"http://192.0.2.1/mcp", "Authorization", false, true},
		{"http://mcp.example/mcp", "cookie", false, true},
		{"http://mcp.example/mcp", "Proxy-Authorization", false, true},
		{"http://mcp.example/mcp", "X-Api-Key", false, true},
		{"http://mcp.example/mcp", "PRIVATE_TOKEN", false, true},
		{"http://user:pass@mcp.example/mcp", "", false, true},
		{"http://mcp.example/mcp", "X-Tenant", false, false},
		{"http://mcp.example/mcp", "Authorization", true, false},
		{"https://mcp.example/mcp", "Authorization", false, false},
		{"http://127.0.0.1:9/mcp", "Authorization", false, false},
		{"http://[::1]:9/mcp", "Authorization", false, false},
		{"http://localhost:9/mcp", "Authorization", false, false},
	} {
		header := http.Header{}
		if test.name != "" {
			header[test.name] = []string{"secret"}
		}
		transport := mcphttp.NewTransport(test.url, &mcphttp.TransportOptions{Header: header,
			Client: &http.Client{Transport: sent}, InsecureHTTP: test.insecure})
		_, err := mcp.Connect(t.Context(), transport, nil)
		if refused := err != nil && strings.Contains(err.Error(), "InsecureHTTP"); refused != test.refused ||
			!refused && !strings.Contains(err.Error(), "sent") {
			t.Errorf("%+v: %v, want refused %t", test, err, test.refused)
		}
	}
}
