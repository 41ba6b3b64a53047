package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A reloaded is a host of fake processes, whose configuration tests replace. Commands are the names of
// the processes.
type reloaded struct {
	*host.Host
	fakes map[string]*fakeProcess
	env   map[string]string
}

// newReloaded opens a host with entries of servers, such as `"a": {"command": "one"}`.
func newReloaded(t *testing.T, fakes map[string]*fakeProcess, servers, settings string) *reloaded {
	t.Helper()
	r := &reloaded{fakes: fakes, env: map[string]string{}}
	h, err := host.Open(t.Context(), parseConfig(t, servers, settings), &host.Options{
		Logger: noLog,
		Lookup: func(name string) (string, bool) { value, ok := r.env[name]; return value, ok },
		Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
			if p := fakes[s.Command+strings.TrimPrefix(s.URL, "http://")]; p != nil {
				return p.dial(ctx)
			}
			return nil, errBroken
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Host = h
	t.Cleanup(func() {
		_ = h.Close()
		for _, p := range fakes {
			p.work.Wait()
		}
	})
	return r
}

func parseConfig(t *testing.T, servers, settings string) *config.File {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {` + servers + `}, "patchbay": ` + settings + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// reload reloads and tests what has changed.
func (r *reloaded) reload(t *testing.T, servers, settings string, want host.Diff) {
	t.Helper()
	d, err := r.Reload(t.Context(), parseConfig(t, servers, settings))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*d, want) {
		t.Errorf("reload: got %+v, want %+v", *d, want)
	}
}

func (r *reloaded) wantStarts(t *testing.T, fake string, want int) {
	t.Helper()
	synctest.Wait()
	if got := len(r.fakes[fake].started()); got != want {
		t.Errorf("%d starts of %s, want %d", got, fake, want)
	}
}

func wantText(t *testing.T, c *mcp.Client, tool, want string) {
	t.Helper()
	if f, text := failureOf(t, c, tool); f != nil || text != want {
		t.Errorf("%s: got %+v, %q, want %q", tool, f, text, want)
	}
}

// freshTools returns the names of the tools that a client sees.
func freshTools(t *testing.T, c *mcp.Client) (names []string) {
	t.Helper()
	for tool, err := range c.Tools(mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true})) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

func fakesOf(names ...string) map[string]*fakeProcess {
	all := map[string]*fakeProcess{}
	for _, name := range names {
		all[name] = &fakeProcess{handler: simpleServer(name)}
	}
	return all
}

// A server that has not changed keeps its process and its calls; of one that has, new requests go to the
// new process when it is ready, and the calls in progress continue for 30 seconds at most.
func TestReloadReplacesChangedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := fakesOf("one", "two", "three")
		fakes["three"].startup = 5 * time.Second
		r := newReloaded(t, fakes, `"a": {"command": "one"}, "b": {"command": "two"}`, "{}")
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		wantText(t, c, "b__name", "two")
		var calls sync.WaitGroup
		began := time.Now()
		calls.Go(func() { wantText(t, c, "a__slow", "slow") })
		calls.Go(func() {
			f, _ := failureOf(t, c, "b__slow")
			if f == nil || f.Server != "b" || !f.MayHaveRun || time.Since(began) < 40*time.Second {
				t.Errorf("call of a replaced process: got %+v after %v", f, time.Since(began))
			}
		})
		time.Sleep(10 * time.Second)
		r.reload(t, `"a": {"command": "one"}, "b": {"command": "three"}`, "{}", host.Diff{Changed: []string{"b"}})
		wantText(t, c, "b__name", "two") // until the new process is ready
		time.Sleep(6 * time.Second)
		wantText(t, c, "b__name", "three")
		calls.Wait()
		r.wantStarts(t, "one", 1)
		r.wantStarts(t, "three", 1)
		if n := len(upstream(t, r.Host, "b").Status().Instances); n != 1 {
			t.Errorf("%d instances after the old one was drained, want 1", n)
		}
	})
}

// A removed server is gone for new requests, its calls in progress end normally, and its process ends
// with them. It may come back.
func TestReloadRemovesAndAddsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := fakesOf("one", "two")
		r := newReloaded(t, fakes, `"a": {"command": "one"}, "b": {"command": "two"}`, "{}")
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "b__name", "two")
		old := upstream(t, r.Host, "b")
		var calls sync.WaitGroup
		calls.Go(func() { wantText(t, c, "b__slow", "slow") })
		time.Sleep(25 * time.Second)
		r.reload(t, `"a": {"command": "one"}`, "{}", host.Diff{Removed: []string{"b"}})
		if _, err := c.CallTool(t.Context(), "b__name", nil); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("call of a removed server: got %v", err)
		}
		if got := freshTools(t, c); !slices.Equal(got, []string{"a__add", "a__ask", "a__name", "a__slow"}) {
			t.Errorf("tools: %q", got)
		}
		calls.Wait()
		synctest.Wait()
		if n := len(old.Status().Instances); n != 0 {
			t.Errorf("%d instances of the removed server, want none", n)
		}
		if err := old.Restart(t.Context()); err == nil {
			t.Error("restart of a removed server: no error")
		}
		r.reload(t, `"b": {"command": "two"}, "a": {"command": "one"}`, "{}", host.Diff{Added: []string{"b"}})
		wantText(t, c, "b__name", "two")
		r.wantStarts(t, "one", 1)
		r.wantStarts(t, "two", 2)
		r.reload(t, `"a": {"command": "one"}, "b": {"command": "two", "disabled": true}`, "{}",
			host.Diff{Removed: []string{"b"}})
		time.Sleep(time.Second)
		r.reload(t, "", "{}", host.Diff{Removed: []string{"a"}})
		if got := freshTools(t, c); len(got) != 0 {
			t.Errorf("tools without servers: %q", got)
		}
	})
}

// A call that waits for an answer of its caller continues when the server was changed, replaced by a
// URL, or removed, also after 30 seconds.
func TestReloadKeepsSuspendedCalls(t *testing.T) {
	for name, after := range map[string]string{
		"changed":  `"a": {"command": "one"}, "b": {"command": "three"}`,
		"replaced": `"a": {"command": "one"}, "b": {"url": "http://three"}`,
		"removed":  `"a": {"command": "one"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReloaded(t, fakesOf("one", "two", "three"), `"a": {"command": "one"}, "b": {"command": "two"}`,
					`{"servers": {"b": {"era": "session"}}}`)
				asked, answer := make(chan struct{}), make(chan struct{})
				c := clientWith(t, r.Host, &policy.Caller{}, &mcp.ClientOptions{
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						close(asked)
						<-answer
						return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
					}})
				called := make(chan struct{})
				go func() {
					defer close(called)
					wantText(t, c, "b__ask", "twotrue")
				}()
				<-asked
				settings := `{"servers": {"b": {"era": "session"}}}`
				if name == "removed" {
					settings = "{}"
				}
				if _, err := r.Reload(t.Context(), parseConfig(t, after, settings)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				close(answer)
				<-called
				time.Sleep(2 * time.Second)
				synctest.Wait()
				r.fakes["two"].work.Wait() // the process has ended
			})
		})
	}
}

// changesOf counts the notifications of changed tools that a client gets.
func changesOf(t *testing.T, c *mcp.Client) (take func() int) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			switch {
			case err != nil:
				return
			case e.Kind == mcp.EventListening:
				close(ready)
			case e.Kind == mcp.EventToolsChanged:
				mu.Lock()
				n++
				mu.Unlock()
			}
		}
	}()
	<-ready
	t.Cleanup(func() { cancel(); <-done })
	return func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got := n
		n = 0
		return got
	}
}

// Each view whose list differs is notified once, also if several servers have changed, and no other.
func TestReloadNotifiesViewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := fakesOf("one", "two", "three", "four")
		fakes["four"].startup = 3 * time.Second
		settings := `{"profiles": {"p": {"servers": ["a"]}}}`
		r := newReloaded(t, fakes, `"a": {"command": "one"}, "b": {"command": "two"}, "c": {"command": "three"}`, settings)
		all, profile := client(t, r.Host, &policy.Caller{}), client(t, r.Host, &policy.Caller{Profile: "p"})
		other := client(t, r.Host, &policy.Caller{Principal: principal("x")})
		freshTools(t, all)
		freshTools(t, profile)
		freshTools(t, other)
		ofAll, ofProfile, ofOther := changesOf(t, all), changesOf(t, profile), changesOf(t, other)
		time.Sleep(10 * time.Second)
		ofAll()
		ofProfile()
		ofOther()
		r.reload(t, `"a": {"command": "one"}, "c": {"command": "three", "args": ["x"]}, "d": {"command": "four"}`, settings,
			host.Diff{Added: []string{"d"}, Removed: []string{"b"}, Changed: []string{"c"}})
		wantText(t, all, "a__name", "one") // does not wait for the new server
		time.Sleep(20 * time.Second)
		if a, b, c := ofAll(), ofProfile(), ofOther(); a != 1 || b != 0 || c != 1 {
			t.Errorf("notifications of all, of the profile and of another caller: %d, %d, %d, want 1, 0, 1", a, b, c)
		}
		if got := strings.Join(freshTools(t, all), " "); strings.Contains(got, "b__") || !strings.Contains(got, "d__name") {
			t.Errorf("tools: %s", got)
		}
		r.reload(t, `"a": {"command": "one"}, "c": {"command": "three", "args": ["x"]}, "d": {"command": "four"}`,
			`{"profiles": {"p": {"servers": ["d"]}}}`, host.Diff{Settings: []string{"profiles"}})
		time.Sleep(20 * time.Second)
		if a, b := ofAll(), ofProfile(); a != 0 || b != 1 {
			t.Errorf("notifications after a change of the profile: %d, %d, want 0, 1", a, b)
		}
		if got := freshTools(t, profile); !slices.Contains(got, "d__name") || slices.Contains(got, "a__name") {
			t.Errorf("tools of the profile: %q", got)
		}
	})
}

// Settings apply at once, and keep processes unless they are those of a connection. A host
// ignores the settings of the program that serves it.
func TestReloadOfSettings(t *testing.T) {
	const servers = `"a": {"command": "one"}, "b": {"command": "two"}`
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, fakesOf("one", "two"), servers, "{}")
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		r.reload(t, servers, "{}", host.Diff{})
		r.reload(t, servers, `{"servers": {"a": {"deny": ["name"], "rename": {"add": "sum"}}}}`,
			host.Diff{Updated: []string{"a"}})
		if _, err := c.CallTool(t.Context(), "a__name", nil); err == nil {
			t.Error("call of a denied tool: no error")
		}
		if got := freshTools(t, c); !slices.Contains(got, "a__sum") || slices.Contains(got, "a__name") {
			t.Errorf("tools: %q", got)
		}
		r.reload(t, servers, `{"names": {"mode": "conflict"}, "tools": {"mode": "search"}, "listen": "127.0.0.1:9"}`,
			host.Diff{Updated: []string{"a"}, Settings: []string{"names", "tools"}})
		if got := freshTools(t, c); !slices.Contains(got, "search_tools") {
			t.Errorf("tools in search mode: %q", got)
		}
		r.wantStarts(t, "one", 1)
		r.reload(t, `"b": {"command": "two"}, "a": {"command": "one"}`,
			`{"servers": {"a": {"timeout": "5s"}}, "connect": {"links": true}}`,
			host.Diff{Changed: []string{"a"}, Settings: []string{"mcpServers", "names", "tools", "connect"}})
		time.Sleep(time.Second)
		r.reload(t, `"b": {"command": "two"}, "a": {"command": "one"}`, `{"servers": {"a": {"timeout": "5s"}}}`,
			host.Diff{Settings: []string{"connect"}})
		r.wantStarts(t, "one", 2)
	})
}

// Invalid settings change nothing, and are an event. An invalid entry affects its server alone, whose
// process stays in use.
func TestReloadOfInvalidConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, fakesOf("one", "two"), `"a": {"command": "one"}`, "{}")
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		for _, settings := range []string{`{"nmaes": {}}`, `{"names": {"max": 1}}`, `[]`} {
			events := r.Events(t.Context())
			_, err := r.Reload(t.Context(), parseConfig(t, `"b": {"command": "two"}`, settings))
			if err == nil {
				t.Errorf("%s: no error", settings)
			}
			for e := range events {
				if e.Server == "" && e.Reload == nil && errors.Is(e.Err, err) {
					break
				}
			}
		}
		wantText(t, c, "a__name", "one")
		r.reload(t, `"a": {"command": 7}, "b": {"command": "two"}`, "{}",
			host.Diff{Added: []string{"b"}, Changed: []string{"a"}})
		time.Sleep(time.Second)
		wantText(t, c, "a__name", "one")
		wantText(t, c, "b__name", "two")
		if st := upstream(t, r.Host, "a").Status(); st.Err == nil || !strings.Contains(st.Err.Error(), "command") {
			t.Errorf("status of the invalid entry: %+v", st)
		}
		r.reload(t, `"a": {"command": "one"}, "b": {"command": "two"}`, "{}", host.Diff{Changed: []string{"a"}})
		time.Sleep(time.Second)
		r.wantStarts(t, "one", 1)
		_ = r.Close()
		if _, err := r.Reload(t.Context(), parseConfig(t, "", "{}")); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("reload of a closed host: %v", err)
		}
	})
}

// A process whose replacement cannot start stays in use. The replacement is tried again after a minute,
// and at once after another change.
func TestReloadKeepsWhatCannotBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := fakesOf("one", "two")
		fakes["two"].setFail(errBroken)
		r := newReloaded(t, fakes, `"a": {"command": "one"}`, "{}")
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		var failed int
		events := r.Events(t.Context())
		r.reload(t, `"a": {"command": "two"}`, "{}", host.Diff{Changed: []string{"a"}})
		time.Sleep(50 * time.Second)
		wantText(t, c, "a__name", "one")
		r.wantStarts(t, "two", 1)
		fakes["two"].setFail(nil)
		time.Sleep(15 * time.Second)
		wantText(t, c, "a__name", "two")
		for e := range events {
			if e.Err != nil {
				failed++
			}
			if e.State == status.Draining {
				break
			}
		}
		if failed != 1 {
			t.Errorf("%d events of failures, want 1", failed)
		}
		r.reload(t, `"a": {"command": "none"}`, "{}", host.Diff{Changed: []string{"a"}})
		time.Sleep(2 * time.Second)
		r.reload(t, `"a": {"command": "one"}`, "{}", host.Diff{Changed: []string{"a"}})
		time.Sleep(2 * time.Second)
		wantText(t, c, "a__name", "one")
	})
}

// What variables mean counts, and what they are called does not. The outputs of commands do not count.
func TestReloadComparesValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, fakesOf("one"), `"a": {"command": "one", "env": {"TOKEN": "${SECRET}"}}`, "{}")
		r.env["SECRET"], r.env["OTHER"] = "secret-1", "secret-1"
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		r.reload(t, `"a": {"command": "one", "env": {"TOKEN": "${OTHER}"}}`, "{}", host.Diff{})
		r.env["OTHER"] = "secret-2"
		r.reload(t, `"a": {"command": "one", "env": {"TOKEN": "${OTHER}"}}`, "{}", host.Diff{Changed: []string{"a"}})
		time.Sleep(2 * time.Second)
		r.wantStarts(t, "one", 2)
		r.reload(t, `"a": {"command": "one", "env": {"TOKEN": "${OTHER}"}}`, "{}", host.Diff{})
	})
}

// A change of the type or of the sharing replaces the server at once, and subscriptions to resources
// move to it.
func TestReloadReplacesServersOfAnotherType(t *testing.T) {
	for name, after := range map[string][2]string{
		"url":   {`"a": {"url": "http://two"}`, "{}"},
		"share": {`"a": {"command": "two"}`, `{"servers": {"a": {"share": "shared"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := fakesOf("one", "two")
				servers := map[string]*mcp.Server{}
				for name, p := range fakes {
					servers[name] = p.handler.(*mcp.Server)
					mcp.AddResource(servers[name], &mcp.Resource{URI: "file:///both", Name: "both"},
						func(context.Context, string) (string, error) { return name, nil })
				}
				r := newReloaded(t, fakes, `"a": {"command": "one"}`, "{}")
				c := client(t, r.Host, &policy.Caller{Server: "a"})
				wantText(t, c, "name", "one")
				events := make(chan mcp.Event, 100)
				ready := make(chan struct{})
				go func() {
					filter := mcp.SubscriptionFilter{ResourceSubscriptions: []string{"file:///both"}}
					for e, err := range c.Listen(t.Context(), filter) {
						if err != nil {
							return
						}
						if e.Kind == mcp.EventListening {
							close(ready)
							continue
						}
						events <- e
					}
				}()
				<-ready
				r.reload(t, after[0], after[1], host.Diff{Changed: []string{"a"}})
				wantText(t, c, "name", "two")
				time.Sleep(5 * time.Second)
				for len(events) > 0 {
					<-events // what may have been missed
				}
				servers["two"].ResourceUpdated("file:///both")
				time.Sleep(time.Second)
				if len(events) != 1 {
					t.Errorf("%d events of the new server, want 1", len(events))
				}
				fakes["one"].work.Wait()
			})
		})
	}
}

// While the configuration has one server, a view may have its names; with another one, names have
// prefixes, and subscriptions are notified.
func TestReloadOfTheOnlyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, fakesOf("one", "two"), `"a": {"command": "one"}`, "{}")
		c := client(t, r.Host, &policy.Caller{Single: true})
		wantText(t, c, "name", "one")
		changes := changesOf(t, c)
		time.Sleep(time.Second)
		changes()
		r.reload(t, `"a": {"command": "one"}, "b": {"command": "two"}`, "{}", host.Diff{Added: []string{"b"}})
		wantText(t, c, "a__name", "one")
		wantText(t, c, "b__name", "two")
		time.Sleep(10 * time.Second)
		if n := changes(); n != 1 {
			t.Errorf("%d notifications, want 1", n)
		}
		r.reload(t, `"b": {"command": "two"}`, "{}", host.Diff{Removed: []string{"a"}})
		wantText(t, c, "name", "two")
	})
}

// Concurrent requests, subscriptions and reloads: each call of a server that no reload changes has its
// result.
func TestReloadUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, fakesOf("one", "two", "three"), `"a": {"command": "one"}`, "{}")
		done := make(chan struct{})
		var load sync.WaitGroup
		for n := range 4 {
			caller := &policy.Caller{Principal: principal(fmt.Sprint(n % 3))}
			c := client(t, r.Host, caller)
			changesOf(t, c)
			load.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(7 * time.Millisecond):
						wantText(t, c, "a__name", "one")
						_, _ = c.CallTool(t.Context(), "b__name", nil)
						freshTools(t, c)
					}
				}
			})
		}
		for n := range 80 {
			other := []string{``, `, "b": {"command": "two"}`, `, "b": {"command": "three"}`, `, "b": {"url": "http://two"}`,
				`, "b": {"command": "none"}`}[n%5]
			share := []string{`"caller"`, `"shared"`, `"session"`}[n/7%3]
			settings, err := json.Marshal(map[string]any{"servers": map[string]any{"b": json.RawMessage(`{"share": ` + share + `}`)}})
			if err != nil {
				t.Fatal(err)
			}
			if other == "" {
				settings = []byte("{}")
			}
			if _, err := r.Reload(t.Context(), parseConfig(t, `"a": {"command": "one"}`+other, string(settings))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(n%11) * 10 * time.Millisecond)
		}
		close(done)
		load.Wait()
		r.wantStarts(t, "one", 3) // one for each principal
	})
}
