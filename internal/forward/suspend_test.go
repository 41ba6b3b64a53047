package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Questions that follow at once are asked together, with keys that are unique within the call. A
// retry without some answers is asked for them again; answers to other questions are ignored.
func TestQuestionsAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		r := request("ann", `{}`)
		r.Capabilities = json.RawMessage(`{"elicitation":{},"roots":{}}`)
		o := serve(t.Context(), &table, r, func(ctx context.Context) (json.RawMessage, error) {
			late := make(chan string)
			go func() {
				time.Sleep(2 * collectTime)
				late <- answered(table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form)))
			}()
			first, err := asks(&table, wire.MethodElicitationCreate, wire.MethodRootsList)(ctx)
			return append(append(first, ' '), <-late...), err
		})
		after(collectTime - 1)
		if _, suspended, _ := table.Usage(); suspended != 0 {
			t.Error("the client was asked, want the call to collect questions")
		}
		collected()
		if len(o.asked) != 2 || o.asked["q1"] != wire.MethodElicitationCreate || o.asked["q2"] != wire.MethodRootsList {
			t.Errorf("first round: got %v, want q1 and q2", o.asked)
		}
		after(collectTime) // the late question is there
		used := o.state
		o = serve(t.Context(), &table, retry(*r, used, `{"q1":{"action":"decline"},"x":1,"q3":{"action":"accept"}}`), nil)
		collected()
		if len(o.asked) != 2 || o.asked["q2"] != wire.MethodRootsList || o.asked["q3"] == "" || o.state == used {
			t.Errorf("second round: got %v, want q2 again and q3, under a new state", o.asked)
		}
		o = serve(t.Context(), &table, retry(*r, o.state, `{}`), nil)
		collected()
		if len(o.asked) != 2 {
			t.Errorf("third round, without answers: got %v, want both again", o.asked)
		}
		last := `{"q1":{"action":"cancel"},"q2":{"roots":[]},"q3":{"action":"cancel"}}`
		o = serve(t.Context(), &table, retry(*r, o.state, last), nil)
		collected()
		if want := `{"answers":["{\"action\":\"decline\"}","{\"roots\":[]}"]} {"action":"cancel"}`; o.result != want {
			t.Errorf("got %+v, want %s", o, want)
		}
	})
}

// An answer of the wrong form is refused, and the question stays open.
func TestAnswersOfWrongFormAreRefused(t *testing.T) {
	const schema = `{"requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`
	for _, test := range []struct {
		method, params, right string
		wrong                 []string
	}{
		{wire.MethodElicitationCreate, schema, `{"action":"accept","content":{"n":1}}`, []string{
			`1`, `null`, `[]`, `{}`, `{"action":"ok"}`, `{"action":"accept"}`, `{"action":"accept","content":[]}`,
			`{"action":"accept","content":{}}`, `{"action":"accept","content":{"n":"1"}}`}},
		{wire.MethodElicitationCreate, strings.Replace(schema, `"integer"`, `"integer","default":1`, 1), `{"action":"accept"}`,
			[]string{`{"action":"accept","content":null}`}},
		{wire.MethodElicitationCreate, `{"mode":"url","url":"https://example.com"}`, `{"action":"accept"}`, []string{`{"action":1}`}},
		{wire.MethodRootsList, ``, `{"roots":[{"uri":"file:///"}]}`, []string{
			`{}`, `{"roots":{}}`, `{"roots":[1]}`, `{"roots":[{}]}`, `{"roots":[{"uri":1}]}`}},
		{wire.MethodSamplingCreateMessage, `{}`, `{"role":"assistant","model":"m","content":{"type":"text","text":""}}`, []string{
			`{}`, `{"role":"assistant","model":"m"}`, `{"role":"assistant","content":[]}`, `{"model":"m","content":[]}`,
			`{"role":"assistant","model":"m","content":"text"}`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			r := request("ann", `{}`)
			r.Capabilities = json.RawMessage(`{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{}}`)
			o := serve(t.Context(), &table, r, func(ctx context.Context) (json.RawMessage, error) {
				got, err := table.Ask(ctx, test.method, json.RawMessage(test.params))
				if err != nil {
					return nil, err
				}
				return got, nil
			})
			collected()
			for _, wrong := range test.wrong {
				again := serve(t.Context(), &table, retry(*r, o.state, `{"q1":`+wrong+`}`), nil)
				wantRefused(t, test.method+" "+wrong, again.err, wire.CodeInvalidParams)
			}
			wantRefused(t, "answers that are no object", serve(t.Context(), &table, retry(*r, o.state, `[]`), nil).err,
				wire.CodeInvalidParams)
			got := serve(t.Context(), &table, retry(*r, o.state, `{"q1":`+test.right+`}`), nil)
			if got.result != test.right || got.err != nil {
				t.Errorf("%s: got %+v, want the answer", test.method, got)
			}
		})
	}
}

// A state that is used twice does not disturb the call, and the error does not invite another run.
func TestStateIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		o := serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
			_, _ = table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form))
			time.Sleep(time.Second)
			return json.RawMessage(`{"a":1}`), nil
		})
		collected()
		again := retry(*request("ann", `{}`), o.state, `{"q1":{"action":"decline"}}`)
		first, second := serve(t.Context(), &table, again, nil), serve(t.Context(), &table, again, nil)
		wantRefused(t, "state used twice", second.err, wire.CodeInvalidParams)
		if second.err == nil || !strings.Contains(second.err.Error(), "do not repeat it") {
			t.Errorf("got %v, want that the request is not repeated", second.err)
		}
		of := retry(*request("bob", `{}`), o.state, `{"q1":{"action":"decline"}}`)
		if err := serve(t.Context(), &table, of, nil).err; err != errUnknownState {
			t.Errorf("state of another principal: got %v, want it unknown", err)
		}
		after(time.Second)
		if first.result != `{"a":1}` {
			t.Errorf("got %+v, want the result", first)
		}
		if err := serve(t.Context(), &table, again, nil).err; err != errUnknownState {
			t.Errorf("after the call: got %v, want it unknown", err)
		}
	})
}

// The result of a server that does not wait for the answer is kept for the client, if it is small.
func TestResultIsKeptWhileClientIsAsked(t *testing.T) {
	for _, size := range []int{maxKeptResult, maxKeptResult + 1} {
		for _, comesBack := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var table Table
				result := `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`
				o := serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
					asked, stop := context.WithCancel(ctx)
					defer stop()
					go func() { _, _ = table.Ask(asked, wire.MethodElicitationCreate, json.RawMessage(form)) }()
					time.Sleep(time.Second)
					return json.RawMessage(result), nil
				})
				after(2 * time.Second)
				if comesBack {
					o = serve(t.Context(), &table, retry(*request("ann", `{}`), o.state, `{"q1":{"action":"decline"}}`), nil)
					if size > maxKeptResult {
						wantRefused(t, "large result", o.err, wire.CodeInternalError)
					} else if o.result != result {
						t.Errorf("got %.100v, want the result", o)
					}
				}
				after(answerTime)
				if calls, suspended, _ := table.Usage(); calls+suspended != 0 {
					t.Errorf("%d calls and %d suspended ones remain, want none", calls, suspended)
				}
			})
		}
	}
}

// While the client is asked, the last progress and some log messages are kept for its next request.
func TestNotificationsAreKeptWhileClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		var got []string
		r := request("ann", `{}`)
		r.Level, r.Token = "info", json.RawMessage(`"first"`)
		r.Notify = func(_ context.Context, method string, params json.RawMessage) error {
			got = append(got, method+" "+string(params))
			return nil
		}
		c := call(func(ctx context.Context) (json.RawMessage, error) {
			_, err := table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form))
			return json.RawMessage(`{}`), asGoError(err)
		})
		raw, err := table.Serve(t.Context(), r, func() *Call { return c })
		if err != nil {
			t.Fatal(err)
		}
		var required struct{ RequestState string }
		if err := json.Unmarshal(raw, &required); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			c.Receive(wire.NotificationProgress, json.RawMessage(fmt.Sprintf(`{"progressToken":7,"progress":%d}`, n)))
		}
		message := `{"level":"info","data":"` + strings.Repeat("x", maxKeptLogs/2-len(`{"level":"info","data":""}`)) + `"}`
		for range 3 {
			table.Log(t.Context(), json.RawMessage(message))
		}
		if len(got) != 0 {
			t.Errorf("got %.100q while the client is asked, want nothing", got)
		}
		again := retry(*r, required.RequestState, `{"q1":{"action":"decline"}}`)
		again.Token = json.RawMessage(`"second"`)
		if _, err := table.Serve(t.Context(), again, nil); err != nil {
			t.Error(err)
		}
		want := []string{wire.NotificationMessage + " " + message, wire.NotificationMessage + " " + message,
			wire.NotificationProgress + ` {"progressToken":"second","progress":2}`}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %.200q, want two log messages and the last progress", got)
		}
	})
}

func asGoError(err *jsonrpc.Error) error {
	if err == nil {
		return nil
	}
	return err
}

// A client that is gone, or that the program gives up, ends its calls.
func TestGoneClientsEndTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ctx, stop := context.WithCancel(t.Context())
		first := serve(ctx, &table, request("ann", `{}`), hang)
		stop()
		synctest.Wait()
		if !first.done || first.err != context.Canceled {
			t.Errorf("without a question: got %+v, want the end of the context", first)
		}
		ctx, stop = context.WithCancel(t.Context())
		ask := asks(&table, wire.MethodElicitationCreate)
		second := serve(ctx, &table, request("ann", `{}`), ask)
		stop() // while questions are collected
		collected()
		if !second.done || second.state != "" {
			t.Errorf("while questions are collected: got %+v, want no state", second)
		}
		third, other := serve(t.Context(), &table, request("ann", `{}`), ask), request("ann", `{}`)
		collected()
		other.Caller = "other"
		kept := serve(t.Context(), &table, other, ask)
		collected()
		if third.state == "" || kept.state == "" {
			t.Fatalf("got %+v and %+v, want questions", third, kept)
		}
		table.Abandon("ann")
		synctest.Wait()
		if calls, suspended, _ := table.Usage(); calls != 1 || suspended != 1 {
			t.Errorf("%d calls and %d suspended ones, want those of the other caller", calls, suspended)
		}
		after(answerTime + cancelDelay)
		if calls, suspended, _ := table.Usage(); calls+suspended != 0 {
			t.Errorf("%d calls and %d suspended ones remain, want none", calls, suspended)
		}
	})
}

// A server of the session era may require pages in an error, whatever the client declared.
func TestResultThatAsksNeedsCapabilities(t *testing.T) {
	required := json.RawMessage(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","elicitationId":"a"}},` +
		`"b":{"method":"elicitation/create","params":{"mode":"url"}}}}`)
	want := strings.Replace(string(required), `,"elicitationId":"a"`, "", 1)
	for capabilities, code := range map[string]int{`{"elicitation":{"url":{}}}`: 0, `{"elicitation":{}}`: wire.CodeMissingCapability} {
		var table Table
		r := request("ann", `{}`)
		r.Capabilities = json.RawMessage(capabilities)
		raw, err := table.Serve(t.Context(), r, func() *Call {
			return call(func(context.Context) (json.RawMessage, error) { return required, nil })
		})
		if code != 0 {
			wantRefused(t, capabilities, err, code)
		} else if err != nil || string(raw) != want {
			t.Errorf("%s: got %s, %v, want the result", capabilities, raw, err)
		}
	}
}

func TestAppendParamsReplacesTheSubject(t *testing.T) {
	for _, test := range []struct{ method, params, subject, want string }{
		{wire.MethodToolsCall, `{"_meta":{"a":1},"uri":"u","name":"n","arguments":{"name":"x"}}`, "m\n",
			`,"name":"m\n","arguments":{"name":"x"}`},
		{wire.MethodResourcesRead, `{"name":"n","uri":"u"}`, "v", `,"uri":"v"`},
		{wire.MethodCompletionComplete, `{"ref":{"type":"ref/prompt","name":"n"},"name":1}`, "m",
			`,"ref":{"type":"ref/prompt","name":"m"}`},
		{wire.MethodCompletionComplete, `{"ref":{"_meta":{}}}`, "m", `,"ref":{}`},
		{wire.MethodCompletionComplete, `{"ref":1}`, "m", `,"ref":1`},
		{"skills/get", `{"uri":"u"}`, "v", `,"uri":"v"`},
		{"acme/use", `{"uri":"u","_meta":{},"more":[1]}`, "v", `,"uri":"v","more":[1]`},
		{wire.MethodToolsCall, `{"_meta":{"a":1},"name":"n"}`, "", `,"name":"n"`},
		{wire.MethodToolsList, ``, "m", ``},
	} {
		if got := string(AppendParams(nil, []byte(test.params), test.method, test.subject, wire.Latest())); got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.method, test.params, got, test.want)
		}
		full := `{` + strings.TrimPrefix(test.want, ",") + `}`
		if got := Subject([]byte(full), test.method); test.subject != "" && strings.Contains(test.want, `"`+test.subject+`"`) &&
			got != test.subject {
			t.Errorf("%s %s: got the subject %q, want %q", test.method, full, got, test.subject)
		}
	}
}
