package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A remote is a server over HTTP that a test can replace by a new process of it, or by a failure.
type remote struct {
	url     string
	handler atomic.Pointer[http.Handler]

	mu       sync.Mutex // guards the fields below
	handlers []*mcphttp.Handler
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		(*r.handler.Load()).ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, h := range r.handlers {
			_ = h.Shutdown(context.Background())
		}
	})
	r.url = s.URL
	return r
}

// serve makes the remote serve a handler without the sessions of those before it.
func (r *remote) serve(h mcp.Handler) {
	served := mcphttp.NewHandler(h, &mcphttp.Options{Logger: noLog})
	r.mu.Lock()
	r.handlers = append(r.handlers, served)
	r.mu.Unlock()
	r.use(served)
}

func (r *remote) use(h http.Handler) { r.handler.Store(&h) }

func (r *remote) fail(status int) {
	r.use(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "failed", status) }))
}

func openRemote(t *testing.T, r *remote, settings string) *host.Host {
	t.Helper()
	entry := map[string]any{"type": "http", "url": r.url}
	return openFile(t, map[string]any{"r": entry}, `{"servers": {"r": `+settings+`}}`, &host.Options{})
}

// A server that has lost the session gets the request once more, in a new session. Its result is that
// of the server, and an event reports the loss.
func TestLostSessionIsNoSuccess(t *testing.T) {
	r := newRemote(t)
	var calls atomic.Int64
	s := simpleServer("r")
	mcp.AddTool(s, &mcp.Tool{Name: "write"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint("written ", calls.Add(1)), nil
	})
	r.serve(s)
	h := openRemote(t, r, `{"era": "session"}`)
	c := client(t, h, &policy.Caller{})
	if f, text := failureOf(t, c, "r__write"); f != nil || text != "written 1" {
		t.Fatalf("got %+v, %q", f, text)
	}
	events := make(chan host.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seq := h.Events(ctx)
	go func() {
		for e := range seq {
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	for n := 2; n <= 3; n++ {
		r.serve(s)
		if f, text := failureOf(t, c, "r__write"); f != nil || text != fmt.Sprint("written ", n) {
			t.Errorf("after the loss: got %+v, %q, want one more call", f, text)
		}
		select {
		case e := <-events:
			if !errors.Is(e.Err, driver.ErrSessionLost) || e.Server != "r" {
				t.Errorf("got event %+v, want the lost session", e)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no event of the lost session")
		}
	}
	if st := upstream(t, h, "r").Status(); st.State != status.Ready || st.Starts != 1 || !st.Session {
		t.Errorf("got %+v", st)
	}
}

// A request that fails does not remove the server or its tools, and does not delay the next request.
func TestOneFailedCheckDoesNotRemoveAServer(t *testing.T) {
	for _, era := range []string{"session", "modern"} {
		t.Run(era, func(t *testing.T) {
			r := newRemote(t)
			s := simpleServer("r")
			r.serve(s)
			working := *r.handler.Load()
			h := openRemote(t, r, `{"era": "`+era+`"}`)
			u := upstream(t, h, "r")
			c := client(t, h, &policy.Caller{})
			if f, text := failureOf(t, c, "r__name"); f != nil {
				t.Fatalf("got %+v, %q", f, text)
			}
			r.fail(http.StatusServiceUnavailable)
			f, text := failureOf(t, c, "r__name")
			if f == nil || f.Code != hosterr.CodeUnavailable || f.Server != "r" || !strings.Contains(text, "503") {
				t.Errorf("got %+v, %q", f, text)
			}
			if st := u.Status(); st.State != status.Degraded || st.Err == nil {
				t.Errorf("got %+v, want degraded", st)
			}
			if tools, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 4 {
				t.Errorf("tools: got %d, %v, want 4", len(tools), err)
			}
			r.use(working)
			if f, text := failureOf(t, c, "r__name"); f != nil || text != "r" {
				t.Errorf("later: got %+v, %q", f, text)
			}
			if st := u.Status(); st.State != status.Ready {
				t.Errorf("later: got %+v, want ready", st)
			}
		})
	}
}

// Without authorization a request fails with auth_required, before and after the connection was made.
func TestUnauthorizedServer(t *testing.T) {
	r := newRemote(t)
	r.fail(http.StatusUnauthorized)
	h := openRemote(t, r, "{}")
	u := upstream(t, h, "r")
	err := h.Start(t.Context())
	var failed *hosterr.Error
	if !errors.As(err, &failed) || failed.Code != hosterr.CodeAuthRequired || failed.MayHaveRun {
		t.Errorf("got %v, want auth_required", err)
	}
	if st := u.Status(); st.State != status.Auth {
		t.Errorf("got %+v, want auth_required", st)
	}
	r.serve(simpleServer("r"))
	if err := u.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := client(t, h, &policy.Caller{})
	r.fail(http.StatusForbidden)
	if f, text := failureOf(t, c, "r__name"); f == nil || f.Code != hosterr.CodeAuthRequired {
		t.Errorf("got %+v, %q, want auth_required", f, text)
	}
	if st := u.Status(); st.State != status.Auth {
		t.Errorf("got %+v, want auth_required", st)
	}
}

// A server that cannot be reached is tried again soon, and never counts as one that crashes.
func TestUnreachableServerIsNoCrashLoop(t *testing.T) {
	r := newRemote(t)
	r.fail(http.StatusBadGateway)
	h := openRemote(t, r, "{}")
	u := upstream(t, h, "r")
	for range 8 {
		err := h.Start(t.Context())
		var failed *hosterr.Error
		if !errors.As(err, &failed) || failed.Code != hosterr.CodeUnavailable || failed.RetryAfter > 5*time.Second {
			t.Fatalf("got %v, want unavailable", err)
		}
		host.EndBackoff(u)
	}
	r.serve(simpleServer("r"))
	if err := h.Start(t.Context()); err != nil || u.Status().State != status.Ready {
		t.Errorf("got %v, %+v", err, u.Status())
	}
}

// Over HTTP, a server of the session era has an instance for each set of capabilities. Modern servers
// need only one.
func TestCapabilitiesOfClientsChooseTheInstance(t *testing.T) {
	for era, want := range map[string][]string{
		"session": {"roots", "form", "form sampling roots"}, "modern": {"roots", "form", "form sampling roots"},
	} {
		t.Run(era, func(t *testing.T) {
			r := newRemote(t)
			s := simpleServer("r")
			mcp.AddTool(s, &mcp.Tool{Name: "declared"}, func(ctx context.Context, _ struct{}) (string, error) {
				var all []string
				caps := mcp.RequestFrom(ctx).Capabilities()
				if caps.Elicitation != nil {
					all = append(all, "form")
				}
				if caps.Sampling != nil {
					all = append(all, "sampling")
				}
				if caps.Roots != nil {
					all = append(all, "roots")
				}
				return strings.Join(all, " "), nil
			})
			r.serve(s)
			h := openRemote(t, r, `{"era": "`+era+`"}`)
			sample := func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) { return nil, nil }
			roots := func(context.Context) ([]mcp.Root, error) { return nil, nil }
			var got []string
			for _, o := range []*mcp.ClientOptions{{Roots: roots}, {Elicit: yes}, {Elicit: yes, Sample: sample, Roots: roots}} {
				c := clientWith(t, h, &policy.Caller{}, o)
				for range 2 {
					f, text := failureOf(t, c, "r__declared")
					if f != nil {
						t.Fatalf("got %+v, %q", f, text)
					}
					if !slices.Contains(got, text) {
						got = append(got, text)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			instances := len(want) // lists use that of the client
			if era == "modern" {
				instances = 1
			}
			if st := upstream(t, h, "r").Status(); len(st.Instances) != instances {
				t.Errorf("got %d instances, want %d", len(st.Instances), instances)
			}
		})
	}
}

// A server whose items are unknown delays lists until it has started, for at most 50 seconds if the client
// gets no progress. It delays no request for another server, and after its failure no further list.
func TestSlowServerDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fakeProcess{handler: simpleServer("slow"), startup: time.Minute}
		quick := &fakeProcess{handler: simpleServer("quick")}
		never := &fakeProcess{handler: simpleServer("never"), startup: time.Hour}
		h := openFakes(t, map[string]*fakeProcess{"slow": slow, "quick": quick, "never": never}, "{}")
		starting := time.Now()
		c := client(t, h, &policy.Caller{})
		begun := time.Now()
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if took := time.Since(begun); err != nil || len(tools) != 4 || took != 50*time.Second {
			t.Errorf("got %d tools, %v after %v, want 4 after 50s", len(tools), err, took)
		}
		asked := time.Now()
		if f, text := failureOf(t, c, "quick__name"); f != nil || text != "quick" || time.Since(asked) != 0 {
			t.Errorf("got %+v, %q after %v", f, text, time.Since(asked))
		}
		tools, err = mcp.Collect(client(t, h, &policy.Caller{}).Tools(t.Context()))
		if took := time.Since(begun); err != nil || len(tools) != 8 || took != 100*time.Second {
			t.Errorf("second client: got %d tools, %v after %v, want 8 after 1m40s", len(tools), err, took)
		}
		tools, err = mcp.Collect(c.Tools(t.Context())) // the start timeout of the third server is 2 minutes
		if took := time.Since(starting); err != nil || len(tools) != 8 || took != 2*time.Minute {
			t.Errorf("later: got %d tools, %v after %v, want 8 after 2m0s", len(tools), err, took)
		}
		if tools, err = mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 8 ||
			time.Since(starting) > 2*time.Minute+5*time.Second {
			t.Errorf("after the failure: got %d tools, %v after %v", len(tools), err, time.Since(starting))
		}
	})
}

// The roots of the configuration answer the questions of servers of both eras, also if the client
// has none. The questions of the same round that are for the client go to it.
//
// Requirement: HOST-27
func TestRootsOfTheConfiguration(t *testing.T) {
	type asked struct {
		Roots []mcp.Root
		Sure  bool
	}
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := mcp.Roots(ctx)
		text, _ := json.Marshal(append([]mcp.Root{}, roots...))
		return string(text), err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "both"}, func(ctx context.Context, _ struct{}) (string, error) {
		var roots []mcp.Root
		var sure bool
		err := mcp.AskAll(ctx, mcp.RootsQuestion("roots", &roots), mcp.FormQuestion("sure", "Sure?", &sure, nil))
		text, _ := json.Marshal(asked{roots, sure})
		return string(text), err
	})
	const listed = `[{"uri":"file:///srv/app"}]`
	for _, era := range []string{"session", "modern"} {
		for mode, want := range map[string]string{
			`["file:///srv/app"]`: listed, `"none"`: "[]", `"pass"`: `[{"uri":"file:///home"}]`,
		} {
			t.Run(era+" "+mode, func(t *testing.T) {
				p := &fakeProcess{handler: s}
				h := openFakes(t, map[string]*fakeProcess{"s": p}, `{"servers": {"s": {"era": "`+era+`", "roots": `+mode+`}}}`)
				roots := func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///home"}}, nil }
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{Roots: roots, Elicit: yes})
				f, text := failureOf(t, c, "s__roots")
				if f != nil || text != want {
					t.Errorf("got %+v, %q, want %s", f, text, want)
				}
				if want == listed {
					f, text = failureOf(t, c, "s__both")
					if both := `{"Roots":[{"uri":"file:///srv/app"}],"Sure":true}`; f != nil || text != both {
						t.Errorf("got %+v, %q, want %s", f, text, both)
					}
					none := clientWith(t, h, &policy.Caller{}, nil)
					if f, text := failureOf(t, none, "s__roots"); f != nil || text != want {
						t.Errorf("client without roots: got %+v, %q, want %s", f, text, want)
					}
				}
			})
		}
	}
}

// The roots of a caller are files of its machine: a server over HTTP, of either era, gets an empty list
// unless the configuration passes them.
//
// Requirement: HOST-27
func TestRemoteServersGetNoRoots(t *testing.T) {
	s := mcp.NewServer("r", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(len(roots)), err
	})
	for _, era := range []string{"session", "modern"} {
		for mode, want := range map[string]string{"": "0", `,"roots":"pass"`: "1", `,"roots":"none"`: "0"} {
			t.Run(era+mode, func(t *testing.T) {
				r := newRemote(t)
				r.serve(s)
				h := openRemote(t, r, `{"era":"`+era+`"`+mode+`}`)
				asked := false
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{
					Roots: func(context.Context) ([]mcp.Root, error) {
						asked = true
						return []mcp.Root{{URI: "file:///home"}}, nil
					}})
				if f, text := failureOf(t, c, "r__roots"); f != nil || text != want || asked != (want == "1") {
					t.Errorf("got %+v, %q, the caller was asked: %v, want %s roots", f, text, asked, want)
				}
			})
		}
	}
}
