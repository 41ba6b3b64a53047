package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const answerTime = time.Minute

// request returns a tool call of a client that may be asked for input with a form.
func request(caller, params string) *Request {
	state, _ := jsonscan.Get([]byte(params), "requestState")
	answers, _ := jsonscan.Get([]byte(params), "inputResponses")
	return &Request{Method: wire.MethodToolsCall, State: state, Answers: answers, Principal: caller, Caller: caller,
		Timeout: answerTime, MayAsk: true, Capabilities: json.RawMessage(`{"elicitation":{}}`)}
}

// A fakeServer asks one question for each call and returns the answer.
type fakeServer struct {
	table Table

	mu    sync.Mutex // guards the fields below
	ended []error    // causes of the ends of calls that were cancelled
}

// onStream returns the context of a message that arrives on the stream of a request.
func onStream(request context.Context) context.Context {
	return peer.WithArrival(request, peer.Arrival{Of: request})
}

// open returns a call that asks and returns the answer.
func (s *fakeServer) open() *Call {
	return call(func(ctx context.Context) (json.RawMessage, error) {
		answer, err := s.table.Ask(onStream(ctx), wire.MethodElicitationCreate, json.RawMessage(`{"message":"?"}`))
		if ctx.Err() != nil {
			s.mu.Lock()
			s.ended = append(s.ended, context.Cause(ctx))
			s.mu.Unlock()
		}
		if err != nil {
			return nil, err
		}
		return answer, nil
	})
}

func call(run func(ctx context.Context) (json.RawMessage, error)) *Call {
	c := &Call{Sender: sendFunc(run)}
	c.Queue = receiver{c}
	return c
}

// A receiver passes notifications on at once.
type receiver struct{ call *Call }

func (r receiver) Put(_ context.Context, method string, params json.RawMessage) error {
	r.call.Receive(method, params)
	return nil
}

func (receiver) Drain(context.Context) {}

type sendFunc func(ctx context.Context) (json.RawMessage, error)

func (f sendFunc) Send(ctx context.Context) (json.RawMessage, error) { return f(ctx) }

// ask sends a first request and returns the state of the question.
func (s *fakeServer) ask(ctx context.Context, r *Request) (state string, err error) {
	raw, err := s.table.Serve(ctx, r, s.open)
	if err != nil {
		return "", err
	}
	var res struct{ ResultType, RequestState string }
	if err := json.Unmarshal(raw, &res); err != nil || res.ResultType != "input_required" || res.RequestState == "" {
		return "", fmt.Errorf("got %s, %w, want a question", raw, err)
	}
	return res.RequestState, nil
}

// answers returns the params of a request with an answer to the first question.
func answers(state string) string {
	return fmt.Sprintf(`{"requestState":%q,"inputResponses":{"q1":{"action":"decline"}}}`, state)
}

// wantRefused checks that err is a JSON-RPC error with a code.
func wantRefused(t *testing.T, what string, err error, code int) {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: got %v, want code %d", what, err, code)
	}
}

func (s *fakeServer) wantEmpty(t *testing.T) {
	t.Helper()
	synctest.Wait()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if len(s.table.calls) != 0 || len(s.table.suspended) != 0 || s.table.running != 0 || len(s.table.queue) != 0 {
		t.Errorf("%d calls, %d suspended, %d running and %d queued ones, want none",
			len(s.table.calls), len(s.table.suspended), s.table.running, len(s.table.queue))
	}
}

func TestCallContinuesWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		ctx, cancel := context.WithCancel(t.Context())
		state, err := s.ask(ctx, request("ann", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		cancel() // the request is over, the call is not
		time.Sleep(answerTime - 1)
		got, err := s.table.Serve(t.Context(), request("ann", answers(state)), s.open)
		if err != nil || string(got) != `{"action":"decline"}` {
			t.Errorf("got %s, %v, want the answer", got, err)
		}
		_, err = s.table.Serve(t.Context(), request("ann", answers(state)), s.open)
		wantRefused(t, "state used twice", err, wire.CodeInvalidParams)
		s.wantEmpty(t)
	})
}

func TestStateIsValidForItsCallerAndMethodOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		state, err := s.ask(t.Context(), request("ann", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		other := request("ann", answers(state))
		other.Method = wire.MethodPromptsGet
		for name, r := range map[string]*Request{
			"another caller": request("bob", answers(state)), "another method": other,
			"unknown state": request("ann", answers("x")), "state that is no string": request("ann", `{"requestState":1}`),
		} {
			_, err := s.table.Serve(t.Context(), r, s.open)
			wantRefused(t, name, err, wire.CodeInvalidParams)
		}
		if _, err := s.table.Serve(t.Context(), request("ann", answers(state)), s.open); err != nil {
			t.Errorf("the right caller after the wrong ones: %v", err)
		}
		s.wantEmpty(t)
	})
}

// A client that does not come back counts as one that dismisses the question. A server that does not
// end the request then is cancelled.
func TestQuestionWithoutAnswerIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		state, err := s.ask(t.Context(), request("ann", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		var told atomic.Pointer[string] // to the server
		var cause atomic.Pointer[error] // of the end of its request
		hangs, err := s.table.Serve(t.Context(), request("bob", `{}`), func() *Call {
			return call(func(ctx context.Context) (json.RawMessage, error) {
				answer, _ := s.table.Ask(onStream(ctx), wire.MethodElicitationCreate, json.RawMessage(`{}`))
				told.Store(new(string(answer)))
				<-ctx.Done()
				cause.Store(new(context.Cause(ctx)))
				return nil, ctx.Err()
			})
		})
		if err != nil {
			t.Fatal(hangs, err)
		}
		time.Sleep(answerTime + cancelDelay - 1)
		synctest.Wait()
		if got := told.Load(); got == nil || *got != `{"action":"cancel"}` || cause.Load() != nil {
			t.Error("want a dismissal, and no cancellation yet")
		}
		time.Sleep(1)
		s.wantEmpty(t)
		if got := cause.Load(); got == nil || *got != errNotAnswered || len(s.ended) != 0 {
			t.Errorf("got %v and %v, want the first request to end by itself, and the second with %v", got, s.ended, errNotAnswered)
		}
		_, err = s.table.Serve(t.Context(), request("ann", answers(state)), s.open)
		wantRefused(t, "late answer", err, wire.CodeInvalidParams)
	})
}

// A request that lasts while the client is asked cancels the suspended call when it ends.
func TestEndOfLastingRequestEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		ctx, cancel := context.WithCancelCause(t.Context())
		r := request("ann", `{}`)
		r.Lasts = true
		if _, err := s.ask(ctx, r); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		cancel(gone)
		s.wantEmpty(t)
		if len(s.ended) != 1 || s.ended[0] != gone {
			t.Errorf("causes: got %v, want %v", s.ended, gone)
		}
	})
}

// Nothing relates messages of a session to requests: with requests of two clients, neither gets them.
func TestMessagesOfSessionNeedOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		received := map[string]string{}
		run := func(caller, level string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			r := request(caller, `{}`)
			r.Level = level
			r.Notify = func(_ context.Context, method string, params json.RawMessage) error {
				received[caller] += method + string(params)
				return nil
			}
			go func() {
				_, _ = table.Run(ctx, r, call(func(ctx context.Context) (json.RawMessage, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}))
			}()
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		info := json.RawMessage(`{"level":"info","data":1}`)
		if table.Log(t.Context(), info) {
			t.Error("log message without a request: got true, want false")
		}
		quiet := run("ann", "")
		errors := run("ann", "error")
		if table.Log(t.Context(), info) {
			t.Error("log message below the level: got true, want false")
		}
		wanted := run("ann", "debug")
		if !table.Log(t.Context(), info) || received["ann"] != wire.NotificationMessage+string(info) {
			t.Errorf("log message of the only client: got %q, want it once", received["ann"])
		}
		other := run("bob", "debug")
		if table.Log(t.Context(), info) || received["bob"] != "" {
			t.Error("log message with two clients: got true, want false")
		}
		for _, stop := range []func(){quiet, errors, wanted, other} {
			stop()
		}
		if len(table.calls) != 0 {
			t.Errorf("%d calls remain, want none", len(table.calls))
		}
	})
}

// Progress has the token of the client, and needs one.
func TestNotificationsHaveTheTokenOfTheClient(t *testing.T) {
	var table Table
	var got []string
	r := request("ann", `{}`)
	r.Notify = func(_ context.Context, method string, params json.RawMessage) error {
		got = append(got, method+" "+string(params))
		return nil
	}
	for _, token := range []string{"", `"t"`} {
		r.Token = nil
		if token != "" {
			r.Token = json.RawMessage(token)
		}
		c := call(nil)
		c.Sender = sendFunc(func(context.Context) (json.RawMessage, error) {
			c.Receive(wire.NotificationProgress, json.RawMessage(`{"progressToken":7,"progress":1,"total":2}`))
			return nil, nil
		})
		if _, err := table.Run(t.Context(), r, c); err != nil {
			t.Fatal(err)
		}
		c.Receive(wire.NotificationProgress, json.RawMessage(`{"progress":2}`)) // too late
	}
	want := wire.NotificationProgress + ` {"progressToken":"t","progress":1,"total":2}`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQuestionsNeedACapability(t *testing.T) {
	const form, page = `{"message":"?"}`, `{"mode":"url"}`
	for _, test := range []struct {
		capabilities, method, params string
		want                         bool
	}{
		{`{}`, wire.MethodRootsList, "", false},
		{`{"roots":{}}`, wire.MethodRootsList, "", true},
		{`{"roots":null}`, wire.MethodRootsList, "", false},
		{`{"sampling":{}}`, wire.MethodSamplingCreateMessage, `{}`, true},
		{`{"sampling":{}}`, wire.MethodSamplingCreateMessage, `{"tools":[]}`, false},
		{`{"sampling":{"tools":{}}}`, wire.MethodSamplingCreateMessage, `{"tools":[]}`, true},
		{`{"elicitation":{}}`, wire.MethodElicitationCreate, form, true},
		{`{"elicitation":{}}`, wire.MethodElicitationCreate, page, false},
		{`{"elicitation":{"url":{}}}`, wire.MethodElicitationCreate, form, false},
		{`{"elicitation":{"url":{}}}`, wire.MethodElicitationCreate, page, true},
		{`{"elicitation":{"form":{},"url":{}}}`, wire.MethodElicitationCreate, form, true},
		{`{"roots":{}}`, "example/ask", "{}", false},
	} {
		if got := accepts([]byte(test.capabilities), test.method, []byte(test.params)); got != test.want {
			t.Errorf("%s %s with %s: got %t", test.method, test.params, test.capabilities, got)
		}
	}
}

// The id of an elicitation belongs to the session with the server, and is not sent on.
func TestQuestionHasTheParamsOfTheServer(t *testing.T) {
	q := &question{key: "q1", method: "m", params: json.RawMessage(`{"a":[1],"elicitationId":"e","b":2}`)}
	if got, want := string(q.append(nil)), `"q1":{"method":"m","params":{"a":[1],"b":2}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	q.params = nil
	if got, want := string(q.append(nil)), `"q1":{"method":"m","params":{}}`; got != want {
		t.Errorf("without params: got %s, want %s", got, want)
	}
}

func TestMetaOmitsTheEnvelope(t *testing.T) {
	got := Meta([]byte(`{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"com.example/a":{"b":1},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"no","baggage":"b=1",`+
		`"com.example.b/a":1,"Traceparent":"x","io.modelcontextprotocol/x":1,"dev.patchbay/x":1,"own":1,"not valid":1}`),
		[]byte(`{"extensions":{"com.example/x":{},"io.modelcontextprotocol/ui":{},"dev.patchbay/y":{}}}`), "baggage")
	if len(got) != 2 || string(got["com.example/a"].(json.RawMessage)) != `{"b":1}` || got["traceparent"] == nil {
		t.Errorf("got %v, want com.example/a and traceparent", got)
	}
}
