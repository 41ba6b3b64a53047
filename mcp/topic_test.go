package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const jobChanged = "notifications/job"

// jobs is a topic of an extension: the progress of jobs by name. Its lock is held while it calls the server.
type jobs struct {
	mu        sync.Mutex
	state     map[string]int
	listeners map[int]jobListener
	next      int
	stopped   int
	ctx       context.Context
}

type jobListener struct {
	names   []string
	changed func(key string)
}

func (j *jobs) topic() mcp.Topic {
	return mcp.Topic{Method: jobChanged, Open: j.open, Params: j.params}
}

func (j *jobs) open(ctx context.Context, req *mcp.Request, member json.RawMessage, changed func(key string)) (any, func(), error) {
	var names []string
	if err := json.Unmarshal(member, &names); err != nil {
		return nil, nil, mcp.Errorf(mcp.CodeInvalidParams, "jobs: want names")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	names = slices.DeleteFunc(names, func(name string) bool { _, ok := j.state[name]; return !ok })
	j.next++
	id := j.next
	if j.listeners == nil {
		j.listeners = map[int]jobListener{}
	}
	j.listeners[id], j.ctx = jobListener{names, changed}, ctx
	return names, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.listeners, id)
		j.stopped++
	}, nil
}

func (j *jobs) params(_ context.Context, _ *mcp.Request, key string) (json.RawMessage, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state[key] < 0 {
		return nil, nil // the job has been removed
	}
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"_meta":{"com.example/a":1},"done":%d}`, key, j.state[key])), nil
}

func (j *jobs) set(name string, done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state[name] = done
	for _, h := range j.listeners {
		if slices.Contains(h.names, name) {
			h.changed(name)
		}
	}
}

func (j *jobs) stops() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// withJobs are the options of a client with the extension.
var withJobs = &mcptest.Options{Extension: mcptest.Extension{Topics: map[string]string{jobChanged: "jobs"}}}

// Requirement: SUB-07
func TestTopicOfAnExtensionIsNotified(t *testing.T) {
	s := newServer(t, nil) // offers nothing else to listen to
	j := &jobs{}
	s.AddTopic("jobs", j.topic())
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), withJobs, func(t *testing.T, c *mcptest.Client) {
		j.state, j.stopped = map[string]int{"a": 0, "b": 0, "c": 0}, 0
		one, two := jsonrpc.StringID("one"), jsonrpc.IntID(2)
		p := subscribe(t, c, one, `{"jobs":["a","b","unknown"],"toolsListChanged":true,"ofTheFuture":[1]}`)
		subscribe(t, c, two, `{"jobs":["b"]}`)
		for _, name := range []string{"a", "b", "c"} {
			j.set(name, 1)
			synctest.Wait()
		}
		p.Cancel("enough")
		synctest.Wait()
		if j.stops() != 1 {
			t.Errorf("got %d stops, want 1", j.stops())
		}
		j.set("a", 2)
		j.set("b", 2)
		synctest.Wait()
		j.set("b", -1)
		synctest.Wait()
		wantNotified(t, c, one, `subscriptions/acknowledged {"jobs":["a","b"]}`, "job", "job")
		wantNotified(t, c, two, `subscriptions/acknowledged {"jobs":["b"]}`, "job", "job")
		got := c.Notifications(jobChanged)
		want := `{"_meta":{"io.modelcontextprotocol/subscriptionId":"one","com.example/a":1},"name":"a","done":1}`
		if string(got[0].Params) != want {
			t.Errorf("got %s, want %s", got[0].Params, want)
		}
		c.Shutdown()
		synctest.Wait()
		if j.stops() != 2 || j.ctx.Err() == nil {
			t.Errorf("%d stops, want 2; context: %v", j.stops(), j.ctx.Err())
		}
	})
}

func TestSessionsHaveNoTopics(t *testing.T) {
	s := changingServer(t, nil)
	s.AddTopic("jobs", mcp.Topic{
		Method: jobChanged,
		Open: func(context.Context, *mcp.Request, json.RawMessage, func(string)) (any, func(), error) {
			t.Error("Open was called for a session")
			return true, nil, nil
		},
		Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) { return nil, nil },
	})
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x://one"}})
		changeEverything(s)
		if got := c.Notifications(jobChanged); len(got) > 0 {
			t.Errorf("got %d notifications, want 0", len(got))
		}
	})
	req := listenRequest(t, `{"jobs":true}`, func(string) error { return nil })
	old, err := mcp.NewRequest(&jsonrpc.Message{ID: req.ID, Method: req.Method, Params: json.RawMessage(strings.Replace(string(req.Params), "2026-07-28", "2025-11-25", 1))})
	if err != nil {
		t.Fatal(err)
	}
	old.Notify = req.Notify
	stop, err := s.Listen(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	stop()
}

// openTopic returns a server whose only feature is the topic "jobs" with the given open.
func openTopic(t *testing.T, open func(ctx context.Context, changed func(string)) (any, func(), error)) *mcp.Server {
	s := newServer(t, &mcp.ServerOptions{Logger: discardLogger()})
	s.AddTopic("jobs", mcp.Topic{
		Method: jobChanged,
		Open: func(ctx context.Context, _ *mcp.Request, _ json.RawMessage, changed func(string)) (any, func(), error) {
			return open(ctx, changed)
		},
		Params: func(_ context.Context, _ *mcp.Request, key string) (json.RawMessage, error) {
			switch key {
			case "panics":
				panic("secret")
			case "fails":
				return nil, errors.New("secret")
			case "another's":
				return json.RawMessage(`{"_meta":{"io.modelcontextprotocol/subscriptionId":"y"}}`), nil
			case "array":
				return json.RawMessage(`[1]`), nil
			case "broken":
				return json.RawMessage(`{"a":`), nil
			}
			return json.RawMessage(`{}`), nil
		},
	})
	return s
}

func TestOpenErrorsAreReturned(t *testing.T) {
	stops := 0
	stop := func() { stops++ }
	var late func(key string) // of the last topic that was opened
	refused := driver.MissingClientCapability(json.RawMessage(`{"extensions":{"com.example/jobs":{}}}`))
	for what, test := range map[string]struct {
		open func(ctx context.Context, changed func(string)) (any, func(), error)
		code int
	}{
		"an error":     {func(context.Context, func(string)) (any, func(), error) { return true, stop, refused }, driver.CodeMissingRequiredClientCapability},
		"a bare error": {func(context.Context, func(string)) (any, func(), error) { return true, stop, errors.New("secret") }, mcp.CodeInternalError},
		"a panic":      {func(context.Context, func(string)) (any, func(), error) { stop(); panic("secret") }, mcp.CodeInternalError},
		"no JSON":      {func(context.Context, func(string)) (any, func(), error) { return make(chan int), stop, nil }, mcp.CodeInternalError},
		"nothing": {func(_ context.Context, changed func(string)) (any, func(), error) {
			late = changed
			changed("early")
			return nil, stop, nil
		}, 0},
		"a stop that panics": {func(context.Context, func(string)) (any, func(), error) {
			return nil, func() { stop(); panic("secret") }, nil
		}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			late = nil
			s := openTopic(t, test.open)
			mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), withJobs, func(t *testing.T, c *mcptest.Client) {
				stops = 0
				if test.code != 0 {
					_, err := c.Try("subscriptions/listen", object{"notifications": object{"jobs": 1}})
					wantCode(t, what, err, test.code)
					if err != nil && strings.Contains(err.Error(), "secret") {
						t.Errorf("got %v", err)
					}
				} else {
					subscribe(t, c, jsonrpc.StringID("x"), `{"jobs":1}`)
					if late != nil {
						late("late")
						synctest.Wait()
					}
					wantNotified(t, c, jsonrpc.StringID("x"), `subscriptions/acknowledged {}`)
				}
				if stops != 1 {
					t.Errorf("got %d stops, want 1", stops)
				}
			})
		})
	}
}

func TestFailedTopicStopsTheOthers(t *testing.T) {
	opened, stopped := 0, 0
	s := openTopic(t, func(context.Context, func(string)) (any, func(), error) {
		opened++
		return true, func() { stopped++ }, nil
	})
	s.AddTopic("panics", mcp.Topic{
		Method: "notifications/panics",
		Open: func(context.Context, *mcp.Request, json.RawMessage, func(string)) (any, func(), error) {
			panic("secret")
		},
		Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) { return nil, nil },
	})
	for opened < 20 { // they are opened in any order
		if _, err := s.ServeMCP(t.Context(), listenRequest(t, `{"jobs":1,"panics":1}`, func(string) error { return nil })); err == nil {
			t.Fatal("got no error, want a refused subscription")
		}
	}
	if opened != stopped {
		t.Errorf("got %d opened and %d stopped, want equal counts", opened, stopped)
	}
}

func TestParamsErrorsDropOnlyTheirNotification(t *testing.T) {
	var change func(string)
	s := openTopic(t, func(_ context.Context, changed func(string)) (any, func(), error) {
		change = changed
		changed("early") // before the acknowledgement, which still comes first
		return true, nil, nil
	})
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), withJobs, func(t *testing.T, c *mcptest.Client) {
		id := jsonrpc.StringID("x")
		subscribe(t, c, id, `{"jobs":1}`)
		for _, key := range []string{"panics", "fails", "array", "broken", "", "another's"} {
			change(key)
		}
		synctest.Wait()
		wantNotified(t, c, id, `subscriptions/acknowledged {"jobs":true}`, "job", "job", "job")
	})
}

func TestChangesOfATopicAreMergedForASlowClient(t *testing.T) {
	for _, kind := range []string{"attached", "detached"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var change func(string)
				s := openTopic(t, func(_ context.Context, changed func(string)) (any, func(), error) {
					change = changed
					return true, nil, nil
				})
				var mu sync.Mutex
				read, got := make(chan struct{}), []string{}
				first := true
				req := listenRequest(t, `{"jobs":1}`, func(n string) error {
					if !first {
						<-read
					}
					first = false
					mu.Lock()
					defer mu.Unlock()
					got = append(got, n[:strings.IndexByte(n, '{')])
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if kind == "detached" {
					stop, err := s.Listen(ctx, req)
					if err != nil {
						t.Fatal(err)
					}
					defer stop()
				} else {
					go func() { _, _ = s.ServeMCP(ctx, req) }()
				}
				synctest.Wait()
				for range 10_000 {
					change("a")
					change("b")
				}
				synctest.Wait() // one of the first may be in progress
				for range 10_000 {
					change("a")
					change("b")
				}
				close(read)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(got) < 3 || len(got) > 5 {
					t.Errorf("got %d notifications, want 3 to 5: %q", len(got), got[:min(len(got), 9)])
				}
			})
		})
	}
}

func TestPendingTopicChangesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var change func(string)
		s := mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: textLog(&log)})
		s.AddTopic("jobs", mcp.Topic{
			Method: jobChanged,
			Open: func(_ context.Context, _ *mcp.Request, _ json.RawMessage, changed func(string)) (any, func(), error) {
				change = changed
				return true, nil, nil
			},
			Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) {
				return json.RawMessage(`{}`), nil
			},
		})
		sent, read := 0, make(chan struct{})
		req := listenRequest(t, `{"jobs":1}`, func(n string) error {
			if strings.HasPrefix(n, jobChanged) {
				<-read
				sent++
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = s.ServeMCP(ctx, req) }()
		synctest.Wait()
		for i := range 100_000 {
			change(fmt.Sprint(i))
			if i == 0 {
				synctest.Wait() // until it is being sent
			}
		}
		close(read)
		synctest.Wait()
		if sent != 20_001 || strings.Count(log.String(), "changes dropped") != 1 {
			t.Errorf("got %d notifications, want 20001 and one log line; log:\n%s", sent, log.String())
		}
	})
}

// The caller of changed holds a lock that Params needs, so changed must not block.
func TestDetachedTopicsSendFromTheirOwnGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &jobs{state: map[string]int{"a": 0, "b": 0}}
		s := newServer(t, nil)
		s.AddTopic("jobs", j.topic())
		addTool(s, "tool", func(context.Context) (string, error) { return "", nil })
		var mu sync.Mutex
		var got []string
		full := false
		req := listenRequest(t, `{"jobs":["a","b"],"toolsListChanged":true}`, func(n string) error {
			mu.Lock()
			defer mu.Unlock()
			if full {
				return errors.New("buffer full")
			}
			got = append(got, n[:strings.IndexByte(n, '{')])
			return nil
		})
		stop, err := s.Listen(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		set := func(f bool) {
			mu.Lock()
			defer mu.Unlock()
			full = f
		}
		j.set("a", 1)
		synctest.Wait()
		addTool(s, "more", func(context.Context) (string, error) { return "", nil })
		time.Sleep(time.Second)
		set(true)
		j.set("a", 2)
		synctest.Wait()
		set(false)
		j.set("b", 3) // what failed is sent with the next
		synctest.Wait()
		stop()
		stop()
		j.set("a", 4)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{acknowledged, jobChanged, toolsChanged, jobChanged, jobChanged}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if j.stops() != 1 || j.ctx.Err() == nil {
			t.Errorf("got %d stops and context error %v, want 1 and an error", j.stops(), j.ctx.Err())
		}
	})
}

func TestInvalidTopicsPanic(t *testing.T) {
	s := newServer(t, nil)
	good := (&jobs{}).topic()
	s.AddTopic("jobs", good)
	for what, f := range map[string]func(){
		"no name":     func() { s.AddTopic("", good) },
		"core name":   func() { s.AddTopic("toolsListChanged", good) },
		"taken":       func() { s.AddTopic("jobs", good) },
		"core method": func() { s.AddTopic("x", mcp.Topic{Method: toolsChanged, Open: good.Open, Params: good.Params}) },
		"no method":   func() { s.AddTopic("x", mcp.Topic{Open: good.Open, Params: good.Params}) },
		"no Open":     func() { s.AddTopic("x", mcp.Topic{Method: "x", Params: good.Params}) },
		"no Params":   func() { s.AddTopic("x", mcp.Topic{Method: "x", Open: good.Open}) },
	} {
		mustPanic(t, what, "mcp: topic", f)
	}
}

func TestTopicsAreMembersOfTheFilter(t *testing.T) {
	f := mcp.SubscriptionFilter{ToolsListChanged: true, Topics: map[string]json.RawMessage{"jobs": json.RawMessage(`["a"]`)}}
	raw, err := json.Marshal(f)
	if err != nil || string(raw) != `{"toolsListChanged":true,"jobs":["a"]}` {
		t.Errorf("got %s, %v", raw, err)
	}
	var back mcp.SubscriptionFilter
	if err := json.Unmarshal(raw, &back); err != nil || !back.ToolsListChanged || string(back.Topics["jobs"]) != `["a"]` {
		t.Errorf("got %+v, %v", back, err)
	}
	if _, err := json.Marshal(mcp.SubscriptionFilter{ToolsListChanged: true, Topics: map[string]json.RawMessage{"toolsListChanged": json.RawMessage(`false`)}}); err == nil {
		t.Error("topic with the name of a core member: got no error")
	}
}

func TestListenReturnsTopicEvents(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &jobs{state: map[string]int{"a": 0, "b": 0}}
				s := changingServer(t, nil)
				s.AddTopic("jobs", j.topic())
				c := mcptest.Dial(t, s, on, nil)
				var got []string
				filter := mcp.SubscriptionFilter{ToolsListChanged: true, Topics: map[string]json.RawMessage{"jobs": json.RawMessage(`["a","x"]`), "none": json.RawMessage(`1`)}}
				for e, err := range c.Listen(t.Context(), filter) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e.Kind.String())
					switch e.Kind {
					case mcp.EventListening:
						if len(e.Filter.Topics) != 1 || string(e.Filter.Topics["jobs"]) != `["a"]` || !e.Filter.ToolsListChanged {
							t.Errorf("got filter %+v, want tools and jobs [\"a\"]", e.Filter)
						}
						j.set("b", 1)
						j.set("a", 1)
					case mcp.EventTopic:
						if e.Method != jobChanged || !strings.HasSuffix(string(e.Params), `"name":"a","done":1}`) {
							t.Errorf("got %s %s", e.Method, e.Params)
						}
						addValueTool(s, "more", "x")
						continue
					}
					if e.Kind == mcp.EventToolsChanged {
						break
					}
				}
				if want := []string{"listening", "topic", "tools changed"}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestListenInASessionHasNoTopics(t *testing.T) {
	s := changingServer(t, nil)
	s.AddTopic("jobs", (&jobs{}).topic())
	for _, on := range mcptest.Before(mcptest.Modern) {
		c := mcptest.Dial(t, s, on, nil)
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true, Topics: map[string]json.RawMessage{"jobs": json.RawMessage(`["a"]`)}}) {
			if err != nil || e.Kind != mcp.EventListening || len(e.Filter.Topics) != 0 || !e.Filter.ToolsListChanged {
				t.Errorf("%s: got %+v, %v", on, e, err)
			}
			break
		}
	}
}

// Events that the loop does not read in time are dropped and reported as EventChangesMissed.
func TestListenLimitsPendingTopicEvents(t *testing.T) {
	for what, test := range map[string]struct {
		notes, size int
		kept        int
	}{
		"many":  {5000, 10, 1000},
		"large": {100, 1 << 20, 4},
		"huge":  {3, 6 << 20, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				filler := strings.Repeat("x", test.size-10)
				server := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method != "subscriptions/listen" {
						return &mcp.DiscoverResult{SupportedVersions: []string{"2026-07-28"}}, nil
					}
					_ = req.Notify(ctx, acknowledged, json.RawMessage(`{"notifications":{"jobs":1,"unasked":2}}`))
					for range test.notes {
						_ = req.Notify(ctx, jobChanged, json.RawMessage(`{"a":"`+filler+`"}`))
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				c, err := mcp.Connect(t.Context(), mcp.InMemory(server), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				counts := map[mcp.EventKind]int{}
				for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"jobs": json.RawMessage(`1`)}}) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Kind == mcp.EventListening {
						if _, unasked := e.Filter.Topics["unasked"]; unasked {
							t.Error("got a topic that was not asked for")
						}
						synctest.Wait() // a slow loop
					}
					counts[e.Kind]++
					if e.Kind == mcp.EventChangesMissed {
						break
					}
				}
				// Events before the first iteration and events while the loop was slow are limited separately.
				if got := counts[mcp.EventTopic]; got < test.kept || got > 2*test.kept || counts[mcp.EventChangesMissed] != 1 {
					t.Errorf("got %v, want %d to %d topic events and one of missed changes", counts, test.kept, 2*test.kept)
				}
			})
		})
	}
}

// EventChangesMissed comes after every older event, so that a caller that reads again has the current state.
func TestListenReportsMissedChangesLast(t *testing.T) {
	const large, middle, small = 3900 << 10, 1 << 20, 10
	for what, test := range map[string]struct {
		sizes []int
		want  []string
	}{
		"after a kept event":    {[]int{large, middle, small, middle}, []string{"topic 0", "topic 2", "resync"}},
		"after the first event": {[]int{large, middle, middle}, []string{"topic 0", "resync"}},
		"after two kept events": {[]int{large, middle, small, small}, []string{"topic 0", "topic 2", "topic 3", "resync"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := make(chan struct{})
				server := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method != "subscriptions/listen" {
						return &mcp.DiscoverResult{SupportedVersions: []string{"2026-07-28"}}, nil
					}
					_ = req.Notify(ctx, acknowledged, json.RawMessage(`{"notifications":{"jobs":1}}`))
					<-slow
					for i, size := range test.sizes {
						_ = req.Notify(ctx, jobChanged, json.RawMessage(fmt.Sprintf(`{"n":%d,"filler":%q}`, i, strings.Repeat("x", size))))
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				c, err := mcp.Connect(t.Context(), mcp.InMemory(server), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []string
				for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"jobs": json.RawMessage(`1`)}}) {
					if err != nil {
						t.Fatal(err)
					}
					switch e.Kind {
					case mcp.EventListening:
						close(slow)
						synctest.Wait()
					case mcp.EventTopic:
						n := decode[struct{ N int }](t, e.Params).N
						got = append(got, fmt.Sprint(e.Kind, " ", n))
					default:
						got = append(got, e.Kind.String())
					}
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestListenDropsTopicEventsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method != "subscriptions/listen" {
				return &mcp.DiscoverResult{SupportedVersions: []string{"2026-07-28"}}, nil
			}
			for _, method := range []string{acknowledged, jobChanged, toolsChanged} {
				_ = req.Notify(ctx, method, json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		c, err := mcp.Connect(t.Context(), mcp.InMemory(server), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var got []string
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if got = append(got, e.Kind.String()); err != nil || e.Kind != mcp.EventListening {
				break
			}
		}
		if want := []string{"listening", "tools changed"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A change may be reported before the acknowledgement is sent.
//
// Requirement: SUB-04
func TestDetachedTopicsAreNotifiedAfterTheAcknowledgement(t *testing.T) {
	reached, sent := make(chan struct{}), make(chan string, 2)
	s := newServer(t, nil)
	s.AddTopic("jobs", mcp.Topic{
		Method: jobChanged,
		Open: func(_ context.Context, _ *mcp.Request, _ json.RawMessage, changed func(string)) (any, func(), error) {
			changed("early")
			<-reached
			for range 1000 {
				runtime.Gosched() // let a premature notification be sent
			}
			return true, nil, nil
		},
		Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) {
			close(reached)
			return json.RawMessage(`{}`), nil
		},
	})
	stop, err := s.Listen(t.Context(), listenRequest(t, `{"jobs":1}`, func(n string) error {
		sent <- n[:strings.IndexByte(n, '{')]
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if got := []string{<-sent, <-sent}; !slices.Equal(got, []string{acknowledged, jobChanged}) {
		t.Errorf("got %q", got)
	}
}
