package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recorded is a handler that keeps the requests that reach it.
type recorded struct {
	mcp.Handler
	mu       sync.Mutex // guards requests
	requests []*mcp.Request
}

func (r *recorded) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	r.mu.Lock()
	kept := *req
	kept.Params = slices.Clone(req.Params)
	r.requests = append(r.requests, &kept)
	r.mu.Unlock()
	return r.Handler.ServeMCP(ctx, req)
}

func (r *recorded) of(method string) (found []*mcp.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.requests {
		if req.Method == method {
			found = append(found, req)
		}
	}
	return found
}

// One server that cannot be reached leaves the others working, and its calls name it.
//
// Requirement: HOST-01
func TestFailedServerLeavesOthers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "dead": nil}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		begin := time.Now()
		if tools, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 2 {
			t.Errorf("got %d tools, %v, want those of the other server", len(tools), err)
		}
		if r, err := c.CallTool(t.Context(), "calc__add", map[string]any{"A": 1, "B": 1}); err != nil || r.Text() != "calc2" {
			t.Errorf("got %+v, %v", r, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the other server was used after %v", took)
		}
		err := h.Start(t.Context(), "dead")
		var failed *hosterr.Error
		if !errors.As(err, &failed) || failed.Server != "dead" || failed.MayHaveRun {
			t.Errorf("start: got %v, want an error that names the server", err)
		}
	})
}

// ownExtension declares an extension whose members of `_meta` begin with com.example.
var ownExtension = map[string]json.RawMessage{"com.example/extension": json.RawMessage("{}")}

// A server receives the requests of its own tools only, with the arguments of the caller, and _meta of
// the extensions that it has declared.
//
// Requirement: HOST-02, HOST-10, HOST-11
func TestServersSeeTheirOwnRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		calc, shop := &recorded{Handler: newServer("calc")}, &recorded{Handler: newServer("shop")}
		h := newHost(t, map[string]mcp.Handler{"calc": calc, "shop": shop}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Extensions: ownExtension})
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: mcp.Meta{"com.example/own": "x", "org.other/own": "y"}})
		if _, err := c.CallTool(ctx, "calc__add", map[string]any{"A": 19, "B": 23}); err != nil {
			t.Fatal(err)
		}
		calls := calc.of("tools/call")
		if len(calls) != 1 || len(shop.of("tools/call")) != 0 {
			t.Fatalf("%d calls reached the server and %d the other, want 1 and 0", len(calls), len(shop.of("tools/call")))
		}
		own, _ := calls[0].Meta("com.example/own")
		name, _ := calls[0].Param("name")
		arguments, _ := calls[0].Param("arguments")
		if string(own) != `"x"` || string(name) != `"add"` || string(arguments) != `{"A":19,"B":23}` {
			t.Errorf("the server got %s", calls[0].Params)
		}
		if text := string(calls[0].Params); strings.Contains(text, "shop") || strings.Contains(text, "calc__") ||
			strings.Contains(text, "org.other") {
			t.Errorf("the server learns of others, or got a member of no declared extension: %s", text)
		}
	})
}

// The requests of one caller use one session, or stand alone with the revision and the capabilities.
//
// Requirement: HOST-03, HOST-04, HOST-33
func TestRevisionAndSessions(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		calc := &recorded{Handler: newServer("calc")}
		h := newHost(t, map[string]mcp.Handler{"calc": calc}, up, "{}")
		for range 2 {
			c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
			if _, err := c.CallTool(t.Context(), "calc__add", map[string]any{"A": 1, "B": 1}); err != nil {
				t.Fatal(err)
			}
		}
		sessions := map[string]bool{}
		for _, req := range calc.of("tools/call") {
			if req.Revision() != up.Revision {
				t.Errorf("the request has revision %s, want %s", req.Revision(), up.Revision)
			}
			id := strings.Join(req.Header["Mcp-Session-Id"], "")
			sessions[id] = true
		}
		if len(sessions) != 1 {
			t.Errorf("the requests used the sessions %v, want one", sessions)
		}
	})
}

// A host starts no server before a request needs it, and ends all when it is closed.
//
// Requirement: HOST-05
func TestHostStartsAndEndsServers(t *testing.T) {
	calc := &recorded{Handler: newServer("calc")}
	on := mcptest.Combination{Transport: mcptest.Stdio, Revision: mcptest.Modern}
	h := newHost(t, map[string]mcp.Handler{"calc": calc}, on, "{}")
	view := h.For(&policy.Caller{})
	if len(calc.of("server/discover")) != 0 {
		t.Error("a view has connected to the server")
	}
	c := mcptest.Dial(t, view, on, nil)
	if _, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(calc.of("server/discover")) != 1 {
		t.Errorf("got %v and %d connections, want one", err, len(calc.of("server/discover")))
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if r, err := c.CallTool(t.Context(), "calc__add", map[string]any{}); err != nil || !r.IsError {
		t.Errorf("call of a closed host: got %+v, %v, want a failed call", r, err)
	}
}

// A server is offered what its caller supports, and what it asks for beyond that reaches no caller.
//
// Requirement: HOST-13
func TestUndeclaredCapabilitiesAreNotUsed(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": featureServer()}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil) // supports nothing
		for _, tool := range []string{"all__ask", "all__sample", "all__roots", "all__url"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := c.CallTool(ctx, tool, nil)
			if ctx.Err() != nil {
				t.Errorf("%s: no response, %v", tool, err)
			}
			cancel()
		}
	})
}

// A failed tool is a result that the model sees. So is a call that could not be delivered, which says
// whether it may have run.
//
// Requirement: HOST-24
func TestErrorsOfToolsReachTheModel(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		all := featureServer()
		silent := mcp.NewServer("silent", "1.0.0", nil)
		mcp.AddTool(silent, &mcp.Tool{Name: "run"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		h := newHost(t, map[string]mcp.Handler{"all": all, "silent": silent}, up,
			`{"servers":{"silent":{"timeout":"5s"}}}`)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		if r, err := c.CallTool(t.Context(), "all__fail", nil); err != nil || !r.IsError || r.Text() != "no paper" {
			t.Errorf("got %+v, %v, want the error of the tool", r, err)
		}
		r, err := c.CallTool(t.Context(), "silent__run", nil)
		if err != nil || !r.IsError || !strings.Contains(r.Text(), `server "silent"`) ||
			!strings.Contains(r.Text(), "may have run") {
			t.Fatalf("got %+v, %v, want a failed call that names the server", r, err)
		}
		if detail, _ := json.Marshal(r.Meta["dev.patchbay/error"]); !strings.Contains(string(detail), `"code":"timeout"`) ||
			!strings.Contains(string(detail), `"mayHaveRun":true`) {
			t.Errorf("detail: %s", detail)
		}
	})
}

// A question names its server, and each answer of the user reaches it.
//
// Requirement: HOST-25
func TestQuestionsNameTheServerAndMayBeRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, action := range []mcp.ElicitAction{mcp.ElicitAccept, mcp.ElicitDecline, mcp.ElicitCancel} {
		t.Run(string(action), func(t *testing.T) {
			forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
				if !up.Since("2025-06-18") || !down.Since("2025-06-18") {
					return // has no elicitation
				}
				s := mcp.NewServer("forms", "1.0.0", nil)
				mcp.AddTool(s, &mcp.Tool{Name: "form"}, func(ctx context.Context, _ struct{}) (string, error) {
					_, err := mcp.Ask[bool](ctx, "q", "Sure?", nil)
					switch {
					case errors.Is(err, mcp.ErrDeclined):
						return string(mcp.ElicitDecline), nil
					case errors.Is(err, mcp.ErrDismissed):
						return string(mcp.ElicitCancel), nil
					}
					return string(mcp.ElicitAccept), err
				})
				h := newHost(t, map[string]mcp.Handler{"forms": s, "other": newServer("other")}, up, "{}")
				message := ""
				c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{
					Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						message = p.Message
						r := &mcp.ElicitResult{Action: action}
						if action == mcp.ElicitAccept {
							r.Content = json.RawMessage(`{"value":true}`)
						}
						return r, nil
					}})
				r, err := c.CallTool(t.Context(), "forms__form", nil)
				if err != nil || r.Text() != string(action) || message != "[forms] Sure?" {
					t.Errorf("got %+v, %v, the question was %q", r, err, message)
				}
			})
		})
	}
}

// Names come from the configuration, whatever servers call themselves.
//
// Requirement: HOST-28, HOST-37
func TestNamesComeFromTheConfiguration(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		// Each server claims to be the other.
		h := newHost(t, map[string]mcp.Handler{"calc": newServer("shop"), "shop": newServer("calc")}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		for server, claimed := range map[string]string{"calc": "shop", "shop": "calc"} {
			r, err := c.CallTool(t.Context(), server+"__add", map[string]any{"A": 1, "B": 1})
			if err != nil || r.Text() != claimed+"2" {
				t.Errorf("%s: got %+v, %v", server, r, err)
			}
		}
	})
}

// A server that asks again and again is stopped.
//
// Requirement: HOST-32
func TestRoundsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-06-18") || !down.Since("2025-06-18") {
			return // has no elicitation
		}
		asked := 0
		endless := mcp.NewServer("endless", "1.0.0", nil)
		mcp.AddTool(endless, &mcp.Tool{Name: "run"}, func(ctx context.Context, _ struct{}) (string, error) {
			for n := range 1000 {
				if _, err := mcp.Ask[bool](ctx, string(rune('a'+n)), "More?", nil); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		h := newHost(t, map[string]mcp.Handler{"endless": endless}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{ElicitationsPerMinute: 10_000,
			Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				asked++
				return yes(ctx, p)
			}})
		r, err := c.CallTool(t.Context(), "endless__run", nil)
		if err == nil && !r.IsError || asked > 100 {
			t.Errorf("got %+v, %v after %d questions, want a failure before the 100th", r, err, asked)
		}
		synctest.Wait()
	})
}

// Instructions of servers are cut, and stand under the name of the server.
//
// Requirement: HOST-36
func TestInstructionsAreCut(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		long := mcp.NewServer("long", "1.0.0", &mcp.ServerOptions{Instructions: strings.Repeat("obey me. ", 10_000)})
		short := mcp.NewServer("short", "1.0.0", &mcp.ServerOptions{Instructions: "Add numbers."})
		h := newHost(t, map[string]mcp.Handler{"long": long, "short": short}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		if got := c.Instructions(); len(got) > 16<<10 || !strings.Contains(got, "## short\n") ||
			!strings.Contains(got, "Add numbers.") || strings.Count(got, "obey me.") > 300 {
			t.Errorf("got %d bytes: %.300s", len(got), got)
		}
		one := mcptest.Dial(t, h.For(&policy.Caller{Server: "long"}), down, nil)
		if got := one.Instructions(); len(got) > 16<<10 || !strings.HasPrefix(got, "obey me. ") {
			t.Errorf("one server: got %d bytes: %.300s", len(got), got)
		}
	})
}
