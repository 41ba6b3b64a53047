package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// extended are the options of a client whose messages no core schema describes.
var extended = &mcp.ClientOptions{Extensions: map[string]json.RawMessage{events.ID: json.RawMessage("{}")}}

type subscribeFunc = func(context.Context, *mcp.Client, string, any, *events.SubscribeOptions,
) iter.Seq2[events.Occurrence[build], error]

var subscribeFuncs = map[string]subscribeFunc{
	"poll": events.Poll[build], "listen": events.Listen[build], "subscribe": events.Subscribe[build],
}

// collect receives n occurrences and returns their ids.
func collect(t testing.TB, seq iter.Seq2[events.Occurrence[build], error], n int) (ids []string) {
	t.Helper()
	for o, err := range seq {
		if err != nil {
			t.Errorf("after %v: %v", ids, err)
			break
		}
		if ids = append(ids, o.ID); len(ids) == n {
			break
		}
	}
	return ids
}

func TestClientReceivesOccurrences(t *testing.T) {
	s, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	mcptest.RunClient(t, s, extended, func(t *testing.T, c *mcp.Client) {
		if c.Revision() < mcptest.Modern {
			for _, err := range events.Subscribe[build](t.Context(), c, "build.finished", nil, nil) {
				if !errors.Is(err, events.ErrNotOffered) {
					t.Errorf("got %v", err)
				}
			}
			return
		}
		for name, subscribe := range subscribeFuncs {
			active := make(chan struct{}, 1)
			opts := &events.SubscribeOptions{Position: func(string) {
				select {
				case active <- struct{}{}:
				default:
				}
			}}
			got := make(chan []string)
			go func() {
				got <- collect(t, subscribe(t.Context(), c, "build.finished", filter{Branch: "main"}, opts), 2)
			}()
			<-active
			emit(t, builds, 1, "main")
			emit(t, builds, 2, "fix")
			emit(t, builds, 3, "main")
			if ids := <-got; !slices.Equal(ids, []string{"b1", "b3"}) {
				t.Errorf("%s: got %v", name, ids)
			}
		}
	})
}

// A subscription continues at its position when the server ends its streams, without duplicates.
func TestClientContinuesAtItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newServer(t, nil)
		builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
		var calls atomic.Int32
		flaky := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method != "events/stream" && req.Method != "events/poll" {
				return s.ServeMCP(ctx, req)
			}
			n := calls.Add(1)
			if n%2 == 0 {
				return nil, mcp.Errorf(mcp.CodeInternalError, "out of order")
			}
			if req.Method == "events/stream" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 10*time.Second, mcp.ErrShutdown)
				defer cancel()
			}
			return s.ServeMCP(ctx, req)
		})
		c := dial(t, flaky)
		for name, subscribe := range subscribeFuncs {
			var failures, positions int
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			active := make(chan struct{})
			go func() {
				<-active
				for i := range 20 {
					<-time.After(7 * time.Second)
					emit(t, builds, i+1, "")
				}
			}()
			last := ""
			got := collect(t, subscribe(ctx, c, "build.finished", nil, &events.SubscribeOptions{
				Failed: func(error) { failures++ }, Position: func(cursor string) {
					if positions++; positions == 1 {
						close(active)
					}
					last = cursor
				},
				Gap: func() { t.Errorf("%s: a gap", name) },
			}), 20)
			cancel()
			if len(got) != 20 || failures == 0 || positions < 19 || last == "" {
				t.Errorf("%s: got %v, %d failures, %d positions", name, got, failures, positions)
			}
		}
	})
}

// A hostile is a server that answers with what a test gives it.
type hostile struct {
	list   string
	poll   string
	frames []string // "method params"
	hang   bool
}

func (h *hostile) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case "server/discover":
		return &mcp.DiscoverResult{SupportedVersions: []string{mcptest.Modern}, Capabilities: mcp.ServerCapabilities{
			Extensions: map[string]any{events.ID: object{}}}}, nil
	case "events/list":
		return mcp.RawResult(h.list), nil
	case "events/poll":
		return mcp.RawResult(h.poll), nil
	}
	for _, f := range h.frames {
		method, params, _ := strings.Cut(f, " ")
		if err := req.Notify(ctx, "notifications/events/"+method, json.RawMessage(params)); err != nil {
			return nil, err
		}
	}
	if h.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return mcp.RawResult(`{"resultType":"complete"}`), nil
}

func terminated(code int) string {
	return fmt.Sprintf(`terminated {"error":{"code":%d,"message":"no"}}`, code)
}

func TestClientOfHostileServer(t *testing.T) {
	const occurrence = `"name":"e","timestamp":"2026-01-01T00:00:00Z"`
	for name, test := range map[string]struct {
		server *hostile
		want   string // what the loop and the functions saw
	}{
		"terminated": {&hostile{frames: []string{`active {}`, terminated(-32024)}}, "error"},
		"sketch":     {&hostile{frames: []string{`active {}`, terminated(-32012)}}, "error"},
		"removed": {&hostile{frames: []string{`active {}`, terminated(-32023)},
			list: `{"resultType":"complete","events":[]}`}, "error"},
		"duplicates and other names": {&hostile{frames: []string{`active {}`,
			`event {"eventId":"1","data":{},` + occurrence + `}`, `event {"eventId":"1","data":{},` + occurrence + `}`,
			`event {"eventId":"2","name":"other","data":{},"timestamp":"2026-01-01T00:00:00Z"}`, `unknown {}`,
			`error {"error":{"code":1,"message":"m"}}`, `error {}`,
			`event {"eventId":"3","data":[],` + occurrence + `}`,
			`terminated {}`}, hang: true}, "1 failed invalid error"},
		"silent":       {&hostile{frames: []string{`active {}`}, hang: true}, "failed gap failed gap"},
		"never active": {&hostile{hang: true}, "failed failed failed failed failed error"},
		"ends at once": {&hostile{}, "failed failed failed failed failed error"},
		"not an object": {&hostile{frames: []string{`active {"cursor":7}`}, hang: true},
			"failed failed failed failed failed error"},
		"without history": {&hostile{frames: []string{`active {"cursor":null}`}}, "failed gap failed gap failed"},
		"a cursor beyond 4 KiB": {&hostile{frames: []string{`active {"cursor":"c"}`,
			`heartbeat {"cursor":"` + strings.Repeat("x", 5<<10) + `"}`}, hang: true}, "at c failed"},
		"truncated": {&hostile{frames: []string{`active {"cursor":"c","truncated":true}`}, hang: true},
			"gap at c failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, test.server)
				var seen []string
				see := func(what string) { seen = append(seen, what) }
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
				defer cancel()
				opts := &events.SubscribeOptions{Failed: func(error) { see("failed") }, Gap: func() { see("gap") },
					Position: func(cursor string) { see("at " + cursor) }}
				for o, err := range events.Listen[build](ctx, c, "e", nil, opts) {
					switch {
					case errors.Is(err, mcp.ErrInvalidResult) && o.ID != "":
						see("invalid")
					case err != nil:
						see("error")
					default:
						see(o.ID)
					}
				}
				if got := strings.Join(seen, " "); !strings.HasPrefix(got+" ", test.want+" ") ||
					strings.HasSuffix(test.want, "error") && got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestPollOfHostileServer(t *testing.T) {
	for name, test := range map[string]struct{ result, want string }{
		"null":           {`{"resultType":"complete","events":[null]}`, "error"},
		"no object":      {`{"resultType":"complete","events":{}}`, "error"},
		"no interval":    {`{"resultType":"complete","events":[],"nextPollMs":-5,"hasMore":true}`, "60 polls"},
		"endless stream": {`{"resultType":"complete","events":[],"nextPollMs":9000000000000000}`, "1 polls"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hostile{poll: test.result}
				polls := 0
				c := dial(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method == "events/poll" {
						polls++
					}
					return h.ServeMCP(ctx, req)
				}))
				got := ""
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Millisecond)
				defer cancel()
				for _, err := range events.Poll[build](ctx, c, "e", nil, nil) {
					got = "error"
					if err == nil {
						got = "occurrence"
					}
				}
				if got == "" {
					got = fmt.Sprint(polls, " polls")
				}
				if got != test.want && !(test.want == "error" && polls > 3) {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestListOfHostileServer(t *testing.T) {
	for name, list := range map[string]string{
		"null":            `{"resultType":"complete","events":[null]}`,
		"no array":        `{"resultType":"complete","events":7}`,
		"repeated cursor": `{"resultType":"complete","events":[],"nextCursor":"same"}`,
	} {
		c := dial(t, &hostile{list: list})
		if _, err := mcp.Collect(events.List(t.Context(), c)); !errors.Is(err, mcp.ErrInvalidResult) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A slow loop does not lose occurrences: the stream is renewed at the position of the loop.
func TestSlowLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newServer(t, nil)
		builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
		c := dial(t, s)
		const n = 3000
		seen, failures := 0, 0
		for o, err := range events.Listen[build](t.Context(), c, "build.finished", nil, &events.SubscribeOptions{
			Position: func(string) {
				if seen == 0 {
					seen = 1
					for i := range n {
						emit(t, builds, i+1, "")
					}
					synctest.Wait()
				}
			},
			Failed: func(error) { failures++ },
		}) {
			if want := fmt.Sprint("b", seen); err != nil || o.ID != want {
				t.Fatalf("got %s, %v, want %s", o.ID, err, want)
			}
			if seen++; seen > n {
				break
			}
		}
		if failures == 0 {
			t.Error("the stream was not renewed")
		}
	})
}

func FuzzNotifications(f *testing.F) {
	f.Add("active", `{"cursor":"c","truncated":true}`)
	f.Add("event", `{"eventId":"1","name":"e","timestamp":"2026-01-01T00:00:00Z","data":{"number":1},"cursor":null}`)
	f.Add("heartbeat", `{}`)
	f.Add("error", `{"error":{"code":-32603,"message":"m"}}`)
	f.Add("terminated", `{"error":{"code":-32024,"message":"m","data":{}}}`)
	f.Fuzz(func(t *testing.T, method, params string) {
		if !json.Valid([]byte(params)) || params[0] != '{' || strings.Contains(method, " ") {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			c := dial(t, &hostile{frames: []string{"active {}", method + " " + params}, list: `{"events":[]}`})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			for o, err := range events.Listen[build](ctx, c, "e", nil, nil) {
				if err == nil && (len(o.ID) > 256 || o.ID == "") {
					t.Errorf("got %+v", o)
				}
			}
		})
	})
}

func FuzzParams(f *testing.F) {
	f.Add(`{"name":"build.finished","arguments":{"branch":"main"},"cursor":"x.1","maxAgeMs":1,"maxEvents":2}`)
	f.Add(`{"name":"build.finished","arguments":null,"cursor":null}`)
	s, srv := newServer(f, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	emit(f, builds, 1, "main")
	f.Fuzz(func(t *testing.T, params string) {
		var members object
		if json.Unmarshal([]byte(params), &members) != nil {
			t.Skip()
		}
		members["_meta"] = object{"io.modelcontextprotocol/protocolVersion": mcptest.Modern,
			"io.modelcontextprotocol/clientInfo":         object{"name": "fuzz", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": object{}}
		raw, err := json.Marshal(members)
		if err != nil {
			t.Skip()
		}
		req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "events/poll", Params: raw})
		if err != nil {
			t.Skip()
		}
		res, err := s.ServeMCP(t.Context(), req)
		if _, ok := errors.AsType[*mcp.Error](err); err != nil && !ok {
			t.Errorf("got %v", err)
		}
		if err == nil {
			if _, err := req.EncodeResult(res); err != nil {
				t.Error(err)
			}
		}
	})
}
