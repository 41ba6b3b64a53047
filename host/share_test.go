package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func principal(name string) *mcp.Principal { return &mcp.Principal{Issuer: "test", Subject: name} }

// wantInstances tests how many connections of a server are open and how many were made.
func wantInstances(t *testing.T, u *host.Upstream, open, starts int) {
	t.Helper()
	synctest.Wait()
	if st := u.Status(); len(st.Instances) != open || st.Starts != starts {
		t.Errorf("got %d instances, %d starts, want %d, %d", len(st.Instances), st.Starts, open, starts)
	}
}

// Each mode of sharing has its own instances.
func TestShareModes(t *testing.T) {
	callers := []*policy.Caller{
		{Principal: principal("a"), Session: "1"}, {Principal: principal("a"), Session: "2"},
		{Principal: principal("b"), Session: "3"},
	}
	for share, want := range map[string]int{"shared": 1, "caller": 2, "session": 3} {
		t.Run(share, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc")}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, fmt.Sprintf(`{"servers": {"calc": {"share": %q}}}`, share))
				for _, caller := range callers {
					c := client(t, h, caller)
					for range 3 {
						if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
							t.Errorf("got %+v, %q", f, text)
						}
					}
				}
				wantInstances(t, upstream(t, h, "calc"), want, want)
			})
		})
	}
}

// With "share": "call", each call has an instance of its own, which ends with it. A call that waits
// for an answer keeps its instance.
func TestEachCallHasAnInstance(t *testing.T) {
	for _, era := range []string{"session", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc")}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"share": "call", "era": "`+era+`"}}}`)
				u := upstream(t, h, "calc")
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{
					Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						time.Sleep(time.Second)
						return yes(ctx, p)
					}})
				starts := u.Status().Starts // for the lists
				for n := range 3 {
					if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
						t.Errorf("got %+v, %q", f, text)
					}
					wantInstances(t, u, starts, starts+n+1)
				}
				if f, text := failureOf(t, c, "calc__ask"); f != nil || text != "calctrue" {
					t.Errorf("question: got %+v, %q", f, text)
				}
				time.Sleep(11 * time.Minute)
				wantInstances(t, u, 0, u.Status().Starts)
			})
		})
	}
}

// Sessions are removed with their instances.
func TestSessionsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"share": "session"}}}`)
		u := upstream(t, h, "calc")
		for n := range 100 {
			session := fmt.Sprint("s", n)
			c := client(t, h, &policy.Caller{Session: session})
			if f, text := failureOf(t, c, "calc__name"); f != nil {
				t.Fatalf("session %d: got %+v, %q", n, f, text)
			}
			h.Operator().EndSession(session)
			synctest.Wait()
		}
		wantInstances(t, u, 0, 0) // what is known about them is removed too
		if views, pools := host.Sizes(h); views != 0 || pools != 0 {
			t.Errorf("got %d views and %d pools, want none", views, pools)
		}
		if n := len(p.started()); n != 100 {
			t.Errorf("got %d starts, want 100", n)
		}
	})
}

// A session whose end was not reported is removed when it was not used for long.
func TestUnusedSessionsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"share": "session"}}}`)
		c := client(t, h, &policy.Caller{Session: "s"})
		if f, text := failureOf(t, c, "calc__name"); f != nil {
			t.Fatalf("got %+v, %q", f, text)
		}
		time.Sleep(3 * time.Hour)
		if _, pools := host.Sizes(h); pools != 0 {
			t.Errorf("got %d pools, want none", pools)
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Errorf("after the removal: got %+v, %q", f, text)
		}
	})
}

// At most 16 instances of a command run. The one that was not used for the longest time makes room;
// if all are in use, requests are refused.
func TestInstancesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		var clients []*mcp.Client
		for n := range 17 {
			clients = append(clients, client(t, h, &policy.Caller{Principal: principal(fmt.Sprint(n))}))
			time.Sleep(time.Second)
		}
		wantInstances(t, u, 16, 17)
		for _, in := range u.Status().Instances {
			if in.Caller.Principal.Subject == "0" {
				t.Error("the instance that was not used for the longest time still runs")
			}
		}
		var wait sync.WaitGroup
		for _, c := range clients[1:] {
			wait.Go(func() {
				if res, err := c.CallTool(t.Context(), "calc__slow", nil); err != nil || res.Text() != "slow" {
					t.Errorf("got %v, %v", res, err)
				}
			})
		}
		time.Sleep(time.Second)
		f, text := failureOf(t, clients[0], "calc__name")
		if f == nil || f.Code != hosterr.CodeLimited || f.MayHaveRun || f.RetryAfterMs == 0 ||
			!strings.Contains(text, `"calc"`) {
			t.Errorf("got %+v, %q, want limited", f, text)
		}
		wait.Wait()
		if f, text := failureOf(t, clients[0], "calc__name"); f != nil || text != "calc" {
			t.Errorf("later: got %+v, %q", f, text)
		}
	})
}

// One principal has at most 4 instances of a server, also if the server may have more. The local user,
// who has several programs, has at most 16.
func TestInstancesOfAPrincipalAreLimited(t *testing.T) {
	r := newRemote(t)
	r.serve(simpleServer("r"))
	h := openRemote(t, r, `{"share": "session"}`)
	for n := range 18 {
		session := fmt.Sprint(n)
		client(t, h, &policy.Caller{Principal: principal("a"), Session: session})
		client(t, h, &policy.Caller{Principal: principal(session), Session: session + " b"})
		client(t, h, &policy.Caller{Session: session + " c"})
	}
	count, local := 0, 0
	all := upstream(t, h, "r").Status().Instances
	for _, in := range all {
		switch {
		case in.Caller.Principal == nil:
			local++
		case in.Caller.Principal.Subject == "a":
			count++
		}
	}
	if count != 4 || local != 16 || len(all) != 38 {
		t.Errorf("got %d instances of the principal, %d of the local user and %d in total, want 4, 16 and 38",
			count, local, len(all))
	}
}

// A restart starts the new instance before it ends the old one, whose requests continue.
func TestRestartDrains(t *testing.T) {
	for _, test := range []struct {
		name string
		tool string
		wait time.Duration // of the user
		want string        // empty if the request is ended after 30 seconds
	}{
		{"a request of 50 seconds", "calc__slow", 0, ""},
		{"a suspended request", "calc__ask", 5 * time.Minute, "calctrue"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc"), startup: 2 * time.Second}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"era": "session"}}}`)
				u := upstream(t, h, "calc")
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{
					Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						time.Sleep(test.wait)
						return yes(ctx, p)
					}})
				var wait sync.WaitGroup
				wait.Go(func() {
					res, err := c.CallTool(t.Context(), test.tool, nil)
					switch {
					case err != nil:
						t.Error(err)
					case test.want == "" && !(res.IsError && strings.Contains(res.Text(), "may have run")):
						t.Errorf("got %q, want an error", res.Text())
					case test.want != "" && res.Text() != test.want:
						t.Errorf("got %q, want %q", res.Text(), test.want)
					}
				})
				time.Sleep(time.Second)
				wait.Go(func() {
					if err := u.Restart(t.Context()); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Second)
				if st := u.Status(); st.State != status.Ready || len(st.Instances) != 2 {
					t.Errorf("during the restart: got %+v, want the old instance", st)
				}
				if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
					t.Errorf("during the restart: got %+v, %q", f, text)
				}
				time.Sleep(2 * time.Second)
				st := u.Status()
				draining := func(in status.Instance) bool { return in.State == status.Draining }
				if len(st.Instances) != 2 || !slices.ContainsFunc(st.Instances, draining) {
					t.Errorf("after the restart: got %+v, want a draining instance", st)
				}
				wait.Wait()
				time.Sleep(2 * time.Second)
				wantInstances(t, u, 1, 2)
			})
		})
	}
}

// A restart that fails leaves the instance in use.
func TestFailedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		c := client(t, h, &policy.Caller{})
		p.setFail(errBroken)
		if err := u.Restart(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("got %v, want %v", err, errBroken)
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Errorf("got %+v, %q", f, text)
		}
		if st := u.Status(); st.State != status.Ready || !errors.Is(st.Err, errBroken) {
			t.Errorf("got %+v, want ready and the reason", st)
		}
	})
}

// A stopped server stays stopped until a restart.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		c := client(t, h, &policy.Caller{})
		u.Stop()
		if st := u.Status(); st.State != status.Stopped || len(st.Instances) != 0 {
			t.Errorf("got %+v, want stopped", st)
		}
		f, text := failureOf(t, c, "calc__name")
		if f == nil || f.Code != hosterr.CodeUnavailable || f.MayHaveRun || !strings.Contains(text, "stopped") {
			t.Errorf("got %+v, %q, want unavailable", f, text)
		}
		if tools, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 4 {
			t.Errorf("tools of the stopped server: got %d, %v", len(tools), err)
		}
		if err := u.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// Callers do not share a server over HTTP by default, also if it keeps no sessions: its transport may use
// credentials of the caller.
func TestServersOverHTTPAreNotSharedByDefault(t *testing.T) {
	for _, era := range []string{"session", "modern"} {
		r := newRemote(t)
		r.serve(simpleServer("r"))
		h := openRemote(t, r, `{"era":"`+era+`"}`)
		for _, name := range []string{"a", "b", "a"} {
			c := client(t, h, &policy.Caller{Principal: principal(name)})
			if f, text := failureOf(t, c, "r__name"); f != nil || text != "r" {
				t.Errorf("%s: got %+v, %q", era, f, text)
			}
		}
		if st := upstream(t, h, "r").Status(); len(st.Instances) != 2 {
			t.Errorf("%s: got %d instances, want one for each principal", era, len(st.Instances))
		}
	}
}
