package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const form = `{"message":"?"}`

// An outcome is that of one request of a client.
type outcome struct {
	done   bool
	result string
	err    error
	state  string            // if input is required
	asked  map[string]string // the methods by key
}

// serve serves a request on a goroutine. run is the server, for a request that begins a call.
func serve(ctx context.Context, table *Table, r *Request, run func(ctx context.Context) (json.RawMessage, error)) *outcome {
	o := new(outcome)
	go func() {
		raw, err := table.Serve(ctx, r, func() *Call { return call(run) })
		ordered()
		o.result, o.err = string(raw), err
		var required struct {
			RequestState  string
			InputRequests map[string]struct{ Method string }
		}
		_ = json.Unmarshal(raw, &required)
		o.state, o.asked = required.RequestState, map[string]string{}
		for key, request := range required.InputRequests {
			o.asked[key] = request.Method
		}
		o.done = true
	}()
	synctest.Wait()
	return o
}

// collected waits until the call of an outcome has collected its questions.
func collected() { after(collectTime) }

// after waits until all that happens within d has happened.
func after(d time.Duration) {
	ordered()
	time.Sleep(d)
	synctest.Wait()
}

var order sync.Mutex

// ordered tells the race detector that what the caller did is before what other callers do next:
// the fake time orders them, which it does not know.
func ordered() {
	order.Lock()
	defer order.Unlock()
}

// hang is a server that responds when it is cancelled.
func hang(ctx context.Context) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// asks is a server that asks some questions at once, on a stream of the session, and returns the
// answers.
func asks(table *Table, methods ...string) func(ctx context.Context) (json.RawMessage, error) {
	return func(ctx context.Context) (json.RawMessage, error) {
		answers := make([]string, len(methods))
		done := make(chan struct{}, len(methods))
		for i, method := range methods {
			go func() {
				answers[i] = answered(table.Ask(ctx, method, json.RawMessage(form)))
				done <- struct{}{}
			}()
			time.Sleep(time.Microsecond) // so that the questions are in order
		}
		for range methods {
			<-done
		}
		return json.RawMessage(`{"answers":` + strings.ReplaceAll(fmt.Sprintf("%q", answers), `" "`, `","`) + `}`), nil
	}
}

func answered(result json.RawMessage, err *jsonrpc.Error) string {
	if err != nil {
		return fmt.Sprint(err.Code)
	}
	return string(result)
}

func retry(r Request, state, answers string) *Request {
	r.State, r.Answers = json.RawMessage(fmt.Sprintf("%q", state)), json.RawMessage(answers)
	return &r
}

// A question that arrives on the stream of a request belongs to it, whatever else is in progress.
// So does a log message.
func TestQuestionOnStreamBelongsToItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ctx, stop := context.WithCancel(t.Context())
		streams, logs := map[string]context.Context{}, map[string]string{}
		requests := map[string]*outcome{}
		for _, name := range []string{"ann", "bob", "eve"} {
			r := request(name, `{}`)
			r.Level = "info"
			r.Notify = func(_ context.Context, method string, _ json.RawMessage) error {
				logs[name] += method
				return nil
			}
			if name == "eve" {
				r.Capabilities = json.RawMessage(`{}`)
			}
			requests[name] = serve(ctx, &table, r, func(ctx context.Context) (json.RawMessage, error) {
				streams[name] = ctx
				return hang(ctx)
			})
		}
		of := func(name string) context.Context {
			return peer.WithArrival(t.Context(), peer.Arrival{Of: streams[name]})
		}
		if !table.Log(of("ann"), json.RawMessage(`{"level":"info"}`)) || len(logs) != 1 || logs["ann"] == "" {
			t.Errorf("log message of ann: got %v, want it there only", logs)
		}
		if table.Log(of("bob"), json.RawMessage(`{"level":"debug"}`)) {
			t.Error("log message below the level: got true, want false")
		}
		go func() { _, _ = table.Ask(of("ann"), wire.MethodElicitationCreate, json.RawMessage(form)) }()
		synctest.Wait()
		collected()
		if !requests["ann"].done || requests["ann"].asked["q1"] == "" || requests["bob"].done {
			t.Errorf("question of ann: got %+v and %+v, want it there only", requests["ann"], requests["bob"])
		}
		if got := answered(table.Ask(of("eve"), wire.MethodElicitationCreate, nil)); got != `{"action":"cancel"}` {
			t.Errorf("question of eve, who did not declare the capability: got %s", got)
		}
		foreign := peer.WithArrival(t.Context(), peer.Arrival{Of: t.Context()})
		_, err := table.Ask(foreign, wire.MethodElicitationCreate, json.RawMessage(form))
		wantRefused(t, "question of a request that is not forwarded", err, wire.CodeMethodNotFound)
		stop()
		after(answerTime + cancelDelay)
	})
}

// Without a stream, nothing relates a question or a log message to a request. Once several principals
// have made requests, such messages reach none of them: neither while one principal is asked, nor after
// the requests of the others have ended or were cancelled, nor for requests that could not be asked.
func TestMessagesWithoutStreamReachNoneOfSeveralPrincipals(t *testing.T) {
	for _, other := range []string{"cancelled", "ended", "without capabilities", "that may not ask", "waiting for its client"} {
		t.Run(other, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				table := Table{Logger: slog.New(slog.NewTextHandler(&lines, nil))}
				logs := 0
				principal := func(name string) *Request {
					r := request(name, `{}`)
					r.Level = "debug"
					r.Notify = func(context.Context, string, json.RawMessage) error {
						logs++
						return nil
					}
					return r
				}
				bob, run := principal("bob"), hang
				switch other {
				case "ended":
					run = func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }
				case "without capabilities":
					bob.Capabilities = nil
				case "that may not ask":
					bob.MayAsk = false
				case "waiting for its client":
					run = asks(&table, wire.MethodElicitationCreate)
				}
				ctx, cancel := context.WithCancel(t.Context())
				serve(ctx, &table, bob, run)
				collected()
				if other == "cancelled" {
					cancel()
					synctest.Wait()
				}
				ann := serve(t.Context(), &table, principal("ann"), func(ctx context.Context) (json.RawMessage, error) {
					if table.Log(ctx, json.RawMessage(`{"level":"error"}`)) {
						t.Error("a log message was delivered")
					}
					_, err := table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form))
					return nil, asGoError(err)
				})
				collected()
				if ann.state != "" || !ann.done || logs != 0 {
					t.Errorf("got %+v and %d log messages, want neither a question nor a message", ann, logs)
				}
				wantRefused(t, "question", ann.err, wire.CodeMethodNotFound)
				if text := lines.String(); strings.Count(text, `\"share\": \"caller\"`) != 2 {
					t.Errorf("logged %q, want a line for each message", text)
				}
				cancel()
				after(answerTime + cancelDelay)
			})
		})
	}
}

// A log message that names a task belongs to the request for the result of the task.
func TestLogMessageOfTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ctx, stop := context.WithCancel(t.Context())
		logs := map[string]int{}
		for _, name := range []string{"ann", "bob"} {
			serve(ctx, &table, &Request{Method: wire.MethodTasksResult, Task: name, Principal: name, Level: "info",
				Notify: func(context.Context, string, json.RawMessage) error {
					logs[name]++
					return nil
				}}, hang)
		}
		for task, want := range map[string]bool{"bob": true, "eve": false} {
			params := `{"level":"info","_meta":{"` + wire.MetaRelatedTask + `":{"taskId":"` + task + `"}}}`
			if got := table.Log(t.Context(), json.RawMessage(params)); got != want {
				t.Errorf("message of the task of %s: got %t, want %t", task, got, want)
			}
		}
		if logs["ann"] != 0 || logs["bob"] != 1 {
			t.Errorf("got %v, want one message of bob", logs)
		}
		stop()
		synctest.Wait()
	})
}

// A guessed question makes requests wait for each other for at most a minute, and not at all once nothing
// is guessed, because another principal has made a request.
func TestSerialTableBecomesConcurrent(t *testing.T) {
	for _, principal := range []string{"ann", "bob"} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			ctx, stop := context.WithCancel(t.Context())
			serve(ctx, &table, request("ann", `{}`), hang)
			serve(ctx, &table, request("ann", `{}`), asks(&table, wire.MethodElicitationCreate))
			collected()
			var ran atomic.Int64
			run := func(context.Context) (json.RawMessage, error) {
				ran.Add(1)
				return json.RawMessage(`{}`), nil
			}
			waiting := serve(ctx, &table, request("ann", `{}`), run)
			if _, _, serial := table.Usage(); !serial || waiting.done || ran.Load() != 0 {
				t.Fatalf("serial %t, got %+v, want a request that waits", serial, waiting)
			}
			if principal == "ann" {
				after(serialTime)
			}
			other := serve(ctx, &table, request(principal, `{}`), run)
			if _, _, serial := table.Usage(); serial || !waiting.done || !other.done || ran.Load() != 2 {
				t.Errorf("serial %t, got %+v and %+v, want both done", serial, waiting, other)
			}
			stop()
			after(answerTime + cancelDelay)
		})
	}
}

// Of several requests of one principal, the newest is asked, and then they run one at a time: the
// next starts when one ends or is suspended. The answer is delivered at once: it may be for a question of
// the other request, which would wait for it.
func TestGuessedQuestionMakesRequestsSerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		var order []string
		ctx, stop := context.WithCancel(t.Context())
		run := func(name string, f func(context.Context) (json.RawMessage, error)) *outcome {
			r := request("ann", `{}`)
			r.Caller = name // two windows of one user
			return serve(ctx, &table, r, func(ctx context.Context) (json.RawMessage, error) {
				order = append(order, name)
				return f(ctx)
			})
		}
		old := run("old", hang)
		ask := asks(&table, wire.MethodElicitationCreate)
		newest := run("new", ask)
		collected()
		if newest.state == "" || old.done {
			t.Fatalf("got %+v and %+v, want a question for the newest", newest, old)
		}
		next, quiet := run("next", ask), request("ann", `{}`)
		quiet.Capabilities = nil
		if serve(ctx, &table, quiet, hang); len(order) != 2 {
			t.Errorf("started %v, want the next to wait for the first", order)
		}
		if calls, suspended, serial := table.Usage(); calls != 4 || suspended != 1 || !serial {
			t.Errorf("usage: got %d, %d, %t, want 4, 1, true", calls, suspended, serial)
		}
		r := request("ann", `{}`)
		r.Caller = "new"
		last := serve(ctx, &table, retry(*r, newest.state, `{"q1":{"action":"decline"}}`), nil)
		if !last.done || len(order) != 2 {
			t.Errorf("the answer waits for another request, or the next request does not: started %v", order)
		}
		stop()
		synctest.Wait()
		collected()
		if !old.done || !last.done || !next.done {
			t.Errorf("got %+v, %+v, %+v, want them over", old, last, next)
		}
	})
}

// The questions of two requests are taken for those of the newest. Its answers reach both.
func TestAnswersOfGuessedQuestionsReachTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ask := asks(&table, wire.MethodElicitationCreate)
		both := func(ctx context.Context) (json.RawMessage, error) {
			time.Sleep(time.Second)
			return ask(ctx)
		}
		run := func(name string) *outcome {
			r := request("ann", `{}`)
			r.Caller = name
			return serve(t.Context(), &table, r, both)
		}
		old, newest := run("old"), run("new")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if newest.state == "" || old.done {
			t.Fatalf("got %+v and %+v, want the questions for the newest", newest, old)
		}
		r := request("ann", `{}`)
		r.Caller = "new"
		answers := `{"q1":{"action":"decline"},"q2":{"action":"decline"}}`
		last := serve(t.Context(), &table, retry(*r, newest.state, answers), nil)
		if synctest.Wait(); !old.done || !last.done {
			t.Errorf("got %+v and %+v, want both over", old, last)
		}
	})
}

// A server may ask for roots at any time. That does not make requests wait for each other.
func TestGuessedRootsLeaveRequestsConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ctx, stop := context.WithCancel(t.Context())
		r := request("ann", `{}`)
		r.Capabilities = json.RawMessage(`{"roots":{}}`)
		old := serve(ctx, &table, r, hang)
		newest := serve(ctx, &table, r, asks(&table, wire.MethodRootsList))
		collected()
		if newest.asked["q1"] != wire.MethodRootsList || old.done {
			t.Fatalf("got %+v and %+v, want a question for the newest", newest, old)
		}
		if _, _, serial := table.Usage(); serial {
			t.Error("requests run one at a time after a guess for roots/list")
		}
		if last := serve(ctx, &table, retry(*r, newest.state, `{"q1":{"roots":[]}}`), nil); !last.done {
			t.Errorf("got %+v, want the result", last)
		}
		stop()
		synctest.Wait()
		collected()
	})
}

func TestSerialRequestsContinueInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{serial: true}
		ask := asks(&table, wire.MethodElicitationCreate)
		first := serve(t.Context(), &table, request("ann", `{}`), ask)
		second := serve(t.Context(), &table, request("ann", `{}`), ask)
		gone, stop := context.WithCancel(t.Context())
		third := serve(gone, &table, request("ann", `{}`), ask)
		stop() // in the queue
		collected()
		collected()
		if first.state == "" || second.state == "" || !third.done || third.err == nil {
			t.Fatalf("got %+v, %+v and %+v, want two questions and the end of the context", first, second, third)
		}
		slow := serve(t.Context(), &table, request("ann", `{}`), func(context.Context) (json.RawMessage, error) {
			time.Sleep(time.Second)
			return json.RawMessage(`{}`), nil
		})
		one := serve(t.Context(), &table, retry(*request("ann", `{}`), first.state, `{"q1":{"action":"decline"}}`), nil)
		if slow.done || one.done {
			t.Error("the answer was delivered out of turn")
		}
		after(time.Second)
		two := serve(t.Context(), &table, retry(*request("ann", `{}`), second.state, `{"q1":{"action":"accept","content":{}}}`), nil)
		if !strings.Contains(one.result, "decline") || !strings.Contains(two.result, "accept") {
			t.Errorf("got %+v and %+v, want each with its answer", one, two)
		}
		if table.running != 0 || len(table.calls) != 0 || len(table.queue) != 0 {
			t.Errorf("%d running, %d calls, %d queued, want none", table.running, len(table.calls), len(table.queue))
		}
	})
}

func TestQueueOfSerialRequestsIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{serial: true}
		ctx, stop := context.WithCancel(t.Context())
		for range maxQueued + 1 {
			serve(ctx, &table, request("ann", `{}`), hang)
		}
		wantRefused(t, "one more", serve(ctx, &table, request("ann", `{}`), hang).err, wire.CodeBusy)
		stop()
		synctest.Wait()
		if calls, _, _ := table.Usage(); calls != 0 {
			t.Errorf("%d calls remain, want none", calls)
		}
	})
}

// Questions that belong to no request go to the functions of the program.
func TestQuestionWithoutRequestHasADefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Default: func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error, bool) {
			return json.RawMessage(`{"roots":[1]}`), nil, method == wire.MethodRootsList
		}}
		if got := answered(table.Ask(t.Context(), wire.MethodRootsList, nil)); got != `{"roots":[1]}` {
			t.Errorf("roots: got %s, want the default", got)
		}
		_, err := table.Ask(t.Context(), wire.MethodSamplingCreateMessage, nil)
		wantRefused(t, "question without a default", err, wire.CodeMethodNotFound)
	})
}

// A client that did not declare a capability is not asked; the server gets the answer of a user who
// dismisses the question.
func TestClientWithoutCapabilityIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		r := request("ann", `{}`)
		r.Capabilities = nil
		o := serve(t.Context(), &table, r,
			asks(&table, wire.MethodElicitationCreate, wire.MethodRootsList, wire.MethodSamplingCreateMessage))
		collected()
		if want := `{"answers":["{\"action\":\"cancel\"}","{\"roots\":[]}","-1"]}`; o.result != want {
			t.Errorf("got %+v, want %s", o, want)
		}
	})
}

// Limits of what one server may ask.
func TestQuestionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ask := func(principal string) *outcome {
			o := serve(t.Context(), &table, request(principal, `{}`), func(ctx context.Context) (json.RawMessage, error) {
				return asks(&table, wire.MethodElicitationCreate)(onStream(ctx))
			})
			collected()
			return o
		}
		for n := range maxSuspended {
			if o := ask(fmt.Sprint(n / maxSuspendedPerPrincipal)); o.state == "" {
				t.Fatalf("after %d: got %+v, want a question", n, o)
			}
			if n == maxSuspendedPerPrincipal-1 {
				if o := ask("0"); o.state != "" || !strings.Contains(o.result, fmt.Sprint(wire.CodeBusy)) {
					t.Errorf("one more of a principal: got %+v, want a refused question", o)
				}
			}
		}
		if o := ask("another"); o.state != "" || !strings.Contains(o.result, fmt.Sprint(wire.CodeBusy)) {
			t.Errorf("one more of another principal: got %+v, want a refused question", o)
		}
		after(answerTime + cancelDelay)
		synctest.Wait()
		if _, suspended, _ := table.Usage(); suspended != 0 {
			t.Errorf("%d suspended calls remain, want none", suspended)
		}
		if o := ask("another"); o.state == "" {
			t.Errorf("after the others expired: got %+v, want a question", o)
		}
		after(answerTime + cancelDelay)
	})
	for _, size := range []int{maxOpenBytes, maxOpenBytes + 1} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			ctx, stop := context.WithCancel(t.Context())
			serve(ctx, &table, request("ann", `{}`), hang)
			ask := func(params string) (err *jsonrpc.Error) {
				asked, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				_, err = table.Ask(asked, wire.MethodElicitationCreate, json.RawMessage(params))
				return err
			}
			params := `{"message":"` + strings.Repeat("x", size-len(`{"message":""}`)) + `"}`
			if err := ask(params); (err != nil && err.Code == wire.CodeBusy) != (size > maxOpenBytes) {
				t.Errorf("%d bytes: got %v", size, err)
			}
			stop()
		})
	}
}

// A server that never stops asking is refused in the end.
func TestRoundsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		o := serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
			for {
				if _, err := table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form)); err != nil {
					return nil, err
				}
			}
		})
		rounds := 0
		for ; ; rounds++ {
			if collected(); o.state == "" {
				break
			}
			answer := fmt.Sprintf(`{"q%d":{"action":"decline"}}`, rounds+1)
			o = serve(t.Context(), &table, retry(*request("ann", `{}`), o.state, answer), nil)
		}
		wantRefused(t, "the last round", o.err, wire.CodeBusy)
		if rounds != maxRounds {
			t.Errorf("%d rounds, want %d", rounds, maxRounds)
		}
	})
}

// A call that is in progress for long may not ask any more.
func TestAskingTimeIsLimited(t *testing.T) {
	for wait, code := range map[time.Duration]int{maxAskingTime: 0, maxAskingTime + 1: wire.CodeBusy} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			o := serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
				time.Sleep(wait)
				_, err := table.Ask(ctx, wire.MethodElicitationCreate, json.RawMessage(form))
				return json.RawMessage(`{}`), asGoError(err)
			})
			after(wait + collectTime)
			if asked := o.state != ""; asked != (code == 0) {
				t.Errorf("after %v: got %+v", wait, o)
			}
			if code != 0 {
				wantRefused(t, "late question", o.err, code)
			}
			after(answerTime)
		})
	}
}

// A server may withdraw a question. Its answer is ignored then.
func TestWithdrawnQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		asked, withdraw := context.WithCancel(t.Context())
		o := serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
			_, _ = table.Ask(asked, wire.MethodElicitationCreate, json.RawMessage(form))
			time.Sleep(time.Second)
			return json.RawMessage(`{"a":1}`), nil
		})
		collected()
		withdraw()
		synctest.Wait()
		o = serve(t.Context(), &table, retry(*request("ann", `{}`), o.state, `{"q1":{"action":"decline"}}`), nil)
		if o.done {
			t.Errorf("got %+v, want the server to continue", o)
		}
		after(time.Second)
		if o.result != `{"a":1}` {
			t.Errorf("got %+v, want the result", o)
		}
		asked, withdraw = context.WithCancel(t.Context())
		o = serve(t.Context(), &table, request("ann", `{}`), func(ctx context.Context) (json.RawMessage, error) {
			_, _ = table.Ask(asked, wire.MethodElicitationCreate, json.RawMessage(form))
			return hang(ctx)
		})
		withdraw() // before the client was asked
		collected()
		if o.done {
			t.Errorf("got %+v, want no question", o)
		}
		table.mu.Lock()
		calls := slices.Clone(table.calls)
		table.mu.Unlock()
		calls[0].cancel(nil)
	})
}

// A question that names a task belongs to the request for the result of the task, and no other does.
// Such a request takes no turn.
func TestQuestionOfTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		ctx, cancel := context.WithCancel(t.Context())
		request := func(method, task, principal string) *Request {
			return &Request{Method: method, Task: task, Principal: principal, Caller: principal, MayAsk: true,
				Capabilities: json.RawMessage(`{"elicitation":{}}`), Timeout: time.Hour}
		}
		first := serve(ctx, &table, request("tasks/result", "t1", "ada"), hang)
		second := serve(ctx, &table, request("tasks/result", "t2", "bob"), hang)
		call := serve(ctx, &table, request("tools/call", "", "bob"), hang)
		ask := func(task string) string {
			var got string
			go func() {
				got = answered(table.Ask(peer.WithTask(t.Context(), task), wire.MethodElicitationCreate, json.RawMessage(form)))
			}()
			collected()
			return got
		}
		if got := ask("none"); got != fmt.Sprint(wire.CodeMethodNotFound) {
			t.Errorf("question of an unknown task: got %s", got)
		}
		ask("t2")
		if !second.done || first.done || call.done {
			t.Errorf("question of t2: asked t1 %v, t2 %v, the call %v", first.done, second.done, call.done)
		}
		if got := ask(""); got != fmt.Sprint(wire.CodeMethodNotFound) || call.done || first.done {
			t.Errorf("question without a task: got %s, asked t1 %v, the call %v", got, first.done, call.done)
		}
		if _, _, serial := table.Usage(); serial {
			t.Error("requests for results have made the table serial")
		}
		cancel()
		table.Abandon("bob")
		after(cancelDelay)
	})
}
