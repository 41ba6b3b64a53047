package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A detacher is an extension that detaches calls of tools and responds "detached" to them.
type detacher struct {
	detached *mcp.Request
	state    *mcp.Detached
	runs     atomic.Int64 // runs of detached calls
}

func (d *detacher) wrap(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method != "tools/call" {
			return next.ServeMCP(ctx, req)
		}
		if req.Detached() != nil {
			d.runs.Add(1)
			return next.ServeMCP(ctx, req)
		}
		d.state = &mcp.Detached{}
		d.detached = req.Detach(ctx, d.state)
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text("detached")}}, nil
	})
}

// run serves a detached call once.
func (d *detacher) run(t *testing.T, s *mcp.Server) (mcp.Result, error) {
	t.Helper()
	return s.ServeMCP(mcp.WithPrincipal(t.Context(), d.detached.Principal), d.detached)
}

// inputKeys returns the keys of the input requests in res.
func inputKeys(t *testing.T, res mcp.Result, err error) (keys []string) {
	t.Helper()
	ask, ok := res.(*mcp.InputRequiredResult)
	if err != nil || !ok {
		t.Fatalf("got %+v, %v, want input requests", res, err)
	}
	if ask.RequestState != "" {
		t.Errorf("got request state %q of a detached call, want none", ask.RequestState)
	}
	for key := range ask.InputRequests {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// wantText fails the test if res is not a tool result with the text.
func wantText(t *testing.T, res mcp.Result, err error, want string) {
	t.Helper()
	r, ok := res.(*mcp.CallToolResult)
	if err != nil || !ok || r.Text() != want {
		t.Errorf("got %+v, %v, want the text %q", res, err, want)
	}
}

// responses returns a map of pairs of key and JSON.
func responses(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

func TestDetachedCallOutlivesItsClient(t *testing.T) {
	s := newServer(t, nil)
	r := &detacher{}
	s.Use(r.wrap)
	var saw *mcp.Request
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(ctx context.Context, in struct{ Greeting string }) (string, error) {
		saw = mcp.RequestFrom(ctx)
		mcp.Logger(ctx).Error("discarded")
		who, err := mcp.Ask[string](ctx, "who", "Who are you?", nil)
		return in.Greeting + ", " + who, err
	})
	alice := &mcp.Principal{Issuer: "i", Subject: "alice"}
	mcptest.RunOn(t, s, mcptest.Since("2025-06-18"), &mcptest.Options{Principal: alice, LogLevel: "debug"},
		func(t *testing.T, c *mcptest.Client) {
			r.runs.Store(0)
			if got := callTool(t, c, "greet", object{"Greeting": "Hello"}).text(); got != "detached" {
				t.Fatalf("got %q, want detached", got)
			}
			c.Shutdown()
			synctest.Wait()
			res, err := r.run(t, s)
			if got := inputKeys(t, res, err); !slices.Equal(got, []string{"who"}) {
				t.Errorf("asked %v", got)
			}
			if saw.Revision() != c.Revision || saw.ClientInfo().Name != "mcptest" ||
				saw.Capabilities().Elicitation == nil || saw.Principal != alice ||
				saw.Notify != nil || saw.Header != nil || saw.Detached() != r.state {
				t.Errorf("got request %+v, want that of the client without its connection", saw)
			}
			time.Sleep(1000 * time.Hour)
			r.state.Responses = responses("who", acceptJSON(`{"value":"Alice"}`))
			res, err = r.run(t, s)
			wantText(t, res, err, "Hello, Alice")
			if n := r.runs.Load(); n != 2 {
				t.Errorf("got %d runs of the middleware, want 2", n)
			}
			if logged := c.Notifications("notifications/message"); len(logged) > 0 {
				t.Errorf("got log message %s for a client that is disconnected", logged[0].Params)
			}
		})
}

// deployTool returns a handler that increments effects once and then asks twice.
func deployTool(effects *int) func(context.Context, struct{}) (string, error) {
	return func(ctx context.Context, _ struct{}) (string, error) {
		id, err := mcp.Once(ctx, "id", func(context.Context) (int, error) { *effects++; return *effects, nil })
		if err != nil {
			return "", err
		}
		for i, key := range []string{"a", "b"} {
			mcp.Progress(ctx, float64(i+1), 3, "step "+key)
			if _, err := mcp.Ask[bool](ctx, key, fmt.Sprintf("Deploy %d?", id), nil); err != nil {
				return "", err
			}
		}
		mcp.Progress(ctx, 3, 3, "done")
		return fmt.Sprint("deployed ", id), nil
	}
}

// Another process, with other keys, restores the stored call.
func TestDetachedCallSurvivesARestart(t *testing.T) {
	var effects int
	var updates []string
	r := &detacher{}
	process := func() *mcp.Server {
		s := newServer(t, nil)
		s.Use(r.wrap)
		mcp.AddTool(s, &mcp.Tool{Name: "deploy"}, deployTool(&effects))
		return s
	}
	s := process()
	p := &handlerPeer{TB: t, handler: s, principal: &mcp.Principal{Subject: "alice"}}
	if got := p.call("deploy", "", "", "").text(); got != "detached" {
		t.Fatalf("got %q, want detached", got)
	}
	progress := func(done, total float64, message string) {
		updates = append(updates, fmt.Sprint(done, total, message))
	}
	r.state.Progress = progress
	res, err := r.run(t, s)
	for _, key := range []string{"a", "b"} {
		if got := inputKeys(t, res, err); !slices.Equal(got, []string{key}) {
			t.Fatalf("asked %v, want %s", got, key)
		}
		s = process()
		stored, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(9), Method: "tools/call", Params: bytes.Clone(r.detached.Params)})
		if err != nil {
			t.Fatal(err)
		}
		stored.Principal = &mcp.Principal{Subject: "alice"}
		r.state = &mcp.Detached{
			State: bytes.Clone(r.state.State), Responses: responses(key, acceptJSON(`{"value":true}`)), Progress: progress,
		}
		r.detached = stored.Detach(t.Context(), r.state)
		res, err = r.run(t, s)
		if key == "b" {
			wantText(t, res, err, "deployed 1")
		}
	}
	if effects != 1 {
		t.Errorf("got %d effects, want 1", effects)
	}
	if want := []string{"1 3step a", "2 3step b", "3 3done"}; !slices.Equal(updates, want) {
		t.Errorf("got progress %q, want %q", updates, want)
	}
}

func TestDetachedCallAsksChangedQuestionsAgain(t *testing.T) {
	message := "Delete one file?"
	r := &detacher{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{r.wrap}},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			yes, err := mcp.Ask[bool](ctx, "a", message, nil)
			return fmt.Sprint(yes), err
		})
	s := p.handler.(*mcp.Server)
	p.call("t", "", "", "")
	res, err := r.run(t, s)
	inputKeys(t, res, err)
	message = "Delete all files?"
	r.state.Responses = responses("a", acceptJSON(`{"value":true}`))
	res, err = r.run(t, s)
	inputKeys(t, res, err)
	r.state.Responses = responses("a", acceptJSON(`{"value":"perhaps"}`)) // does not match the form
	res, err = r.run(t, s)
	inputKeys(t, res, err)
	r.state.Responses = nil // no answer
	res, err = r.run(t, s)
	inputKeys(t, res, err)
	r.state.Responses = responses("a", acceptJSON(`{"value":true}`), "unknown", `7`)
	res, err = r.run(t, s)
	wantText(t, res, err, "true")
}

// The detached call does not repeat questions and effects of earlier rounds.
//
// Requirement: TASKX-09
func TestDetachKeepsEarlierRounds(t *testing.T) {
	for _, where := range []string{"in the handler", "in the middleware"} {
		t.Run(where, func(t *testing.T) {
			var d *mcp.Detached
			var detached *mcp.Request
			effects, inMiddleware := 0, false
			detach := func(ctx context.Context, req *mcp.Request) {
				d = &mcp.Detached{}
				detached = req.Detach(ctx, d)
			}
			p := newHandlerPeer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
				return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if inMiddleware && req.Detached() == nil {
						detach(ctx, req)
						return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text("detached")}}, nil
					}
					return next.ServeMCP(ctx, req)
				})
			}}}, func(ctx context.Context, _ json.RawMessage) (string, error) {
				id, err := mcp.Once(ctx, "id", func(context.Context) (int, error) { effects++; return 7, nil })
				if err != nil {
					return "", err
				}
				mcp.Progress(ctx, 1, 0, "asking")
				who, err := mcp.Ask[string](ctx, "who", "Who?", nil)
				if err != nil {
					return "", err
				}
				mcp.Progress(ctx, 1.5, 0, "answered")
				if req := mcp.RequestFrom(ctx); req.Detached() == nil {
					detach(ctx, req)
					return "detached", nil
				}
				mcp.Progress(ctx, 2, 0, "working")
				return fmt.Sprint(who, id), nil
			})
			r := p.call("t", `{"x":1}`, "", "")
			inMiddleware = where == "in the middleware"
			got := p.call("t", `{"x":1}`, `{"who":`+acceptJSON(`{"value":"Alice"}`)+`}`, r.RequestState).text()
			if got != "detached" {
				t.Fatalf("got %q, want detached", got)
			}
			if strings.Contains(string(detached.Params), "inputResponses") ||
				strings.Contains(string(detached.Params), "requestState") {
				t.Errorf("the params are %s", detached.Params)
			}
			var updates []string
			d.Progress = func(_, _ float64, message string) { updates = append(updates, message) }
			res, err := p.handler.ServeMCP(t.Context(), detached)
			wantText(t, res, err, "Alice7")
			want := []string{"answered", "working"}
			if !inMiddleware {
				want = want[1:] // sent by the earlier run
			}
			if effects != 1 || !slices.Equal(updates, want) {
				t.Errorf("got %d effects and progress %q, want 1 and %q", effects, updates, want)
			}
		})
	}
}

// The first request has input responses, and no request state.
func TestDetachKeepsInputResponsesOfTheFirstRequest(t *testing.T) {
	r := &detacher{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{r.wrap}},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			return mcp.Ask[string](ctx, "who", "Who?", nil)
		})
	p.call("t", "", `{"who":`+acceptJSON(`{"value":"Alice"}`)+`}`, "")
	res, err := r.run(t, p.handler.(*mcp.Server))
	wantText(t, res, err, "Alice")
}

func TestDetachRejectsTheStateOfAnotherPrincipal(t *testing.T) {
	r := &detacher{}
	ran := false
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		ran = true
		return mcp.Ask[string](ctx, "who", "Who?", nil)
	})
	s := p.handler.(*mcp.Server)
	p.principal = &mcp.Principal{Subject: "alice"}
	state := p.call("t", "", "", "").RequestState
	s.Use(r.wrap)
	ran, p.principal = false, &mcp.Principal{Subject: "mallory"}
	p.call("t", "", `{"who":`+acceptJSON(`{"value":"Mallory"}`)+`}`, state)
	_, err := r.run(t, s)
	var e *mcp.Error
	if !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams || ran {
		t.Errorf("got error %v, handler ran %v, want invalid params and no run", err, ran)
	}
	if r.state.State != nil {
		t.Errorf("got state %s of another principal", r.state.State)
	}
}

// A handler may detach another call than its own.
func TestDetachDoesNotCopyTheStateOfAnotherCall(t *testing.T) {
	var stored *mcp.Request
	var d *mcp.Detached
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		who, err := mcp.Ask[string](ctx, "who", "Who?", nil)
		if err == nil {
			d = &mcp.Detached{}
			stored.Detach(ctx, d)
		}
		return who, err
	})
	stored = modernRequest(t, nil, "tools/call", object{"name": "t"})
	r := p.call("t", "", "", "")
	if got := p.call("t", "", `{"who":`+acceptJSON(`{"value":"Alice"}`)+`}`, r.RequestState).text(); got != "Alice" {
		t.Fatalf("got %q, want Alice", got)
	}
	if d.State != nil || d.Responses != nil {
		t.Errorf("got state %s and responses %s, want none", d.State, d.Responses)
	}
}

func TestDetachedCallsShareNoMemoryWithTheirRequest(t *testing.T) {
	r := &detacher{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{r.wrap}},
		func(ctx context.Context, args json.RawMessage) (string, error) {
			req := mcp.RequestFrom(ctx)
			trace, _ := req.Meta("progressToken")
			return fmt.Sprintf("%s %s %v", args, trace, req.Capabilities().Roots != nil), nil
		})
	raw := []byte(`{"name":"t","arguments":{"x":1},"inputResponses":{"a":"abc"},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{}},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"me","version":"1"},"progressToken":7}}`)
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call", Params: raw})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.handler.ServeMCP(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] = 'x'
	}
	res, err := r.run(t, p.handler.(*mcp.Server))
	wantText(t, res, err, `{"x":1} 7 true`)
	if got := r.detached.ClientInfo().Name; got != "me" {
		t.Errorf("got client %q, want me", got)
	}
	if got := string(r.state.Responses["a"]); got != `"abc"` {
		t.Errorf("got response %s, want abc", got)
	}
}

func TestDetachedCallsDoNotCountAsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &detacher{}
		release := make(chan struct{})
		p := newHandlerPeer(t, &mcp.ServerOptions{MaxInFlight: 1}, func(context.Context, json.RawMessage) (string, error) {
			<-release
			return "done", nil
		})
		s := p.handler.(*mcp.Server)
		s.Use(r.wrap)
		p.call("t", "", "", "")
		var runs sync.WaitGroup
		for range 3 {
			detached := r.detached.Detach(t.Context(), nil)
			runs.Go(func() {
				res, err := s.ServeMCP(t.Context(), detached)
				wantText(t, res, err, "done")
			})
		}
		synctest.Wait()
		if got := p.call("t", "", "", ""); got.Err != nil || got.text() != "detached" {
			t.Errorf("call while detached calls run: got %+v, want detached", got)
		}
		close(release)
		runs.Wait()
	})
}

func TestProgressOfDetachedCallsIsNotMerged(t *testing.T) {
	const steps = 5000
	r := &detacher{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{r.wrap}},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			var all sync.WaitGroup
			for i := range steps {
				all.Go(func() { mcp.Progress(ctx, float64(i), 0, "") })
			}
			all.Wait()
			mcp.Progress(ctx, steps, -1, "last")
			mcp.Progress(ctx, steps, 0, "again")
			return "", nil
		})
	p.call("t", "", "", "")
	var updates []float64
	r.state.Progress = func(done, total float64, _ string) { // the race detector finds concurrent calls
		updates = append(updates, done)
		if total != 0 {
			t.Errorf("got total %v, want 0", total)
		}
	}
	res, err := r.run(t, p.handler.(*mcp.Server))
	wantText(t, res, err, "")
	if !slices.IsSorted(updates) || updates[len(updates)-1] != steps {
		t.Errorf("got progress %v, want a rising one up to %d", updates, steps)
	}
}

func TestPanicsOfDetachedCallsAreErrors(t *testing.T) {
	for what, f := range map[string]func(ctx context.Context){
		"handler":  func(context.Context) { panic("secret") },
		"progress": func(ctx context.Context) { mcp.Progress(ctx, 1, 2, "") },
	} {
		r := &detacher{}
		p := newHandlerPeer(t, &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{r.wrap}},
			func(ctx context.Context, _ json.RawMessage) (string, error) {
				f(ctx)
				return "", nil
			})
		p.call("t", "", "", "")
		r.state.Progress = func(float64, float64, string) { panic("secret") }
		_, err := r.run(t, p.handler.(*mcp.Server))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestStateOfADetachedCallIsLimited(t *testing.T) {
	r := &detacher{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{r.wrap}},
		func(ctx context.Context, args json.RawMessage) (string, error) {
			var size struct{ Size int }
			if err := json.Unmarshal(args, &size); err != nil {
				return "", err
			}
			large := func(context.Context) (string, error) { return strings.Repeat("x", size.Size), nil }
			if _, err := mcp.Once(ctx, "large", large); err != nil {
				return "", err
			}
			return mcp.Ask[string](ctx, "a", "?", nil)
		})
	s := p.handler.(*mcp.Server)
	p.call("t", `{"Size":1000000}`, "", "") // more than the limit of a request state
	res, err := r.run(t, s)
	inputKeys(t, res, err)
	p.call("t", `{"Size":17000000}`, "", "")
	res, err = r.run(t, s)
	var e *mcp.Error
	if !errors.As(err, &e) || e.Code != mcp.CodeInternalError || r.state.State != nil {
		t.Errorf("got %v, %v", res, err)
	}
}

func FuzzDetachedState(f *testing.F) {
	f.Add([]byte(`{"asked":{"a":[1,2]},"answers":{"a":{"question":"x","answer":1}},"once":{"k":3},"progress":2}`),
		[]byte(`{"value":true}`))
	f.Add([]byte(`{"expires":"x"}`), []byte(`{`))
	f.Add([]byte(`{"answers":{"a":null},"once":null}`), []byte(``))
	f.Add([]byte(``), []byte(`{"action":"accept","content":{"value":"x"}}`))
	p := newHandlerPeer(f, &mcp.ServerOptions{Logger: discardLogger()}, func(ctx context.Context, _ json.RawMessage) (string, error) {
		if _, err := mcp.Once(ctx, "k", func(context.Context) (string, error) { return "v", nil }); err != nil {
			return "", err
		}
		return mcp.Ask[string](ctx, "a", "?", nil)
	})
	f.Fuzz(func(t *testing.T, state, response []byte) {
		req := modernRequest(t, nil, "tools/call", object{"name": "t"})
		d := &mcp.Detached{State: state, Responses: map[string]json.RawMessage{"a": response}}
		res, err := p.handler.ServeMCP(t.Context(), req.Detach(t.Context(), d))
		switch {
		case err != nil && strings.Contains(err.Error(), "incident"), (res == nil) == (err == nil):
			t.Errorf("got %v, %v", res, err)
		case err == nil && res.ResultType() == "input_required" && !json.Valid(d.State):
			t.Errorf("the next state is %q", d.State)
		}
	})
}

func TestUseRunsInsideTheMiddlewareOfTheOptions(t *testing.T) {
	var order []string
	layer := func(name string) mcp.Middleware {
		return func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				order = append(order, name)
				res, err := next.ServeMCP(ctx, req)
				if err != nil {
					order = append(order, name+" sees an error")
				}
				return res, err
			})
		}
	}
	opts := &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{layer("outer"), layer("inner")}}
	p := newHandlerPeer(t, opts, func(context.Context, json.RawMessage) (string, error) { panic("mistake") })
	p.handler.(*mcp.Server).Use(layer("first extension"))
	p.handler.(*mcp.Server).Use(layer("second extension"))
	p.call("t", "", "", "")
	want := []string{"outer", "inner", "first extension", "second extension", "second extension sees an error",
		"first extension sees an error", "inner sees an error", "outer sees an error"}
	if !slices.Equal(order, want) {
		t.Errorf("got order %q, want %q", order, want)
	}
	if len(opts.Middleware) != 2 {
		t.Error("the options of the caller have changed")
	}
	mustPanic(t, "nil", "mcp: Use", func() { p.handler.(*mcp.Server).Use(nil) })
}

// The methods of tasks belong to the core in 2025-11-25, and to an extension in newer revisions.
func TestHandleMethodAcceptsMethodsOfTasks(t *testing.T) {
	s := newServer(t, nil)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list"} {
		s.HandleMethod(method, mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"resultType":"complete","method":"` + req.Method + `"}`), nil
		}))
	}
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if got := c.Call(method, object{"taskId": "日本"}); !strings.Contains(string(got), method) {
				t.Errorf("%[1]s: got %s, want the method %[1]s", method, got)
			}
		}
	})
	for _, on := range mcptest.Since(mcptest.Modern) {
		c := mcptest.Dial(t, s, on, nil)
		if _, err := c.Do(t.Context(), "tasks/get", object{"taskId": "1"}); err != nil {
			t.Errorf("%s: %v", on, err)
		}
	}
}

// Requirement: TASKD-05
func TestExecutionIsListedOnlyInItsRevision(t *testing.T) {
	visible := func(context.Context, mcp.Feature) bool { return true }
	for name, opts := range map[string]*mcp.ServerOptions{
		"same list for all": nil, "list by request": {Visible: visible},
	} {
		s := newServer(t, opts)
		mcp.AddTool(s, &mcp.Tool{Name: "long", Execution: json.RawMessage(`{"taskSupport":"required"}`)},
			func(context.Context, struct{}) (string, error) { return "", nil })
		for _, revision := range mcptest.Revisions() {
			p := &handlerPeer{TB: t, handler: s, revision: revision}
			raw := p.raw("tools/list")
			got := strings.Contains(raw, `"execution":{"taskSupport":"required"}`)
			if got != (revision == "2025-11-25") {
				t.Errorf("%s, %s: got %s, want execution in 2025-11-25 only", name, revision, raw)
			}
		}
	}
}

// raw sends a request without params and returns its result.
func (p *handlerPeer) raw(method string, params ...string) string {
	p.Helper()
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(
		`{` + strings.Join(append(params, `"_meta":{"io.modelcontextprotocol/protocolVersion":"`+p.revision+
			`","io.modelcontextprotocol/clientCapabilities":{}}`), ",") + `}`)})
	if err != nil {
		p.Fatal(err)
	}
	return string(mcp.Driver(p.handler).Respond(p.Context(), req).Result)
}

// Middleware of the client implements an extension. The client's handlers and limits apply to its
// input requests.
//
// Requirement: TASKX-15
func TestMiddlewareMayRequestInputForMethodsOfExtensions(t *testing.T) {
	s := newServer(t, nil)
	var got []string
	s.HandleMethod("tasks/get", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"resultType":"complete"}`), nil
	}))
	ask := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method != "tasks/get" && req.Method != "tools/list" {
				return next.ServeMCP(ctx, req)
			}
			if strings.Contains(string(req.Params),
				`"inputResponses":{"k":{"action":"accept","content":{"value":"Alice"}}},"requestState":"id"`) {
				got = append(got, "answered")
				return next.ServeMCP(ctx, req)
			}
			return &mcp.InputRequiredResult{RequestState: "id", InputRequests: map[string]mcp.InputRequest{"k": {
				Method: "elicitation/create",
				Params: json.RawMessage(`{"mode":"form","message":"Who?",` +
					`"requestedSchema":{"type":"object","properties":{"value":{"type":"string"}}}}`),
			}}}, nil
		})
	}
	for _, on := range mcptest.Since(mcptest.Modern) {
		got = nil
		c := mcptest.Dial(t, s, on, &mcp.ClientOptions{
			Middleware: []mcp.Middleware{ask},
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"Alice"}`)}, nil
			},
		})
		if _, err := c.Do(t.Context(), "tasks/get", object{"taskId": "1"}); err != nil ||
			!slices.Equal(got, []string{"answered"}) {
			t.Errorf("%s: got error %v and %q, want one answered request", on, err, got)
		}
		if _, err := c.Do(t.Context(), "tools/list", nil); !errors.Is(err, mcp.ErrInvalidResult) {
			t.Errorf("%s: tools/list: got %v, want ErrInvalidResult", on, err)
		}
	}
}

func TestClientFromReturnsTheClientOfTheMiddleware(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "one", func(context.Context) (string, error) { return "1", nil })
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			var methods []string
			var from *mcp.Client
			middleware := func(next mcp.Handler) mcp.Handler {
				return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					methods = append(methods, req.Method)
					if from = mcp.ClientFrom(ctx); from != nil && req.Method == "tools/call" {
						if _, err := from.Do(ctx, "tools/list", nil); err != nil {
							return nil, err
						}
					}
					return next.ServeMCP(ctx, req)
				})
			}
			c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Middleware: []mcp.Middleware{middleware}})
			got, err := mcp.CallTool[string](t.Context(), c, "one", nil)
			if err != nil || got != "1" || from != c ||
				!slices.Equal(methods[len(methods)-2:], []string{"tools/call", "tools/list"}) {
				t.Errorf("got %q, %v by %p, want %p; methods %q", got, err, from, c, methods)
			}
		})
	}
	if mcp.ClientFrom(t.Context()) != nil {
		t.Error("ClientFrom without a client: got one, want nil")
	}
}
