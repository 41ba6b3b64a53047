package doctorpage_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/doctorpage"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The page shows each check as it ends, and the report to copy at the end.
func TestDoctorShowsChecksAsTheyEnd(t *testing.T) {
	mcptest.NoLeaks(t)
	failed := doctor.Check{Name: "program", Status: doctor.Fail, Action: "look", Seen: []string{"<b>not installed"}, Next: "install it"}
	begun, more := make(chan struct{}), make(chan struct{})
	s := consoletest.New(t, func(o *console.Options) {
		o.Examine = func(_ context.Context, _ string, d *doctor.Options) (*doctor.Report, error) {
			d.Begin("program", "look")
			d.End(failed)
			d.Begin("start", "start it")
			close(begun)
			<-more
			return &doctor.Report{Target: "npx", Checks: []doctor.Check{failed}}, nil
		}
	})
	b, form := s.Browser(), url.Values{"server": {"broken"}}
	path := "/doctor?" + form.Encode()
	if _, text := s.Send(b, http.MethodGet, path, nil); !strings.Contains(text, "Run the checks") {
		t.Errorf("before a run: got %s", text)
	}
	res, _ := s.Send(b, http.MethodPost, "/doctor/run", form)
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != path {
		t.Errorf("run: got %d, %v, want the page", res.StatusCode, res.Header)
	}
	<-begun
	_, text := s.Send(b, http.MethodGet, path, nil)
	for _, want := range []string{"start: start it", "&lt;b&gt;not installed", "install it", `badge bad`} {
		if !strings.Contains(text, want) {
			t.Errorf("during the run: got %s, want %q", text, want)
		}
	}
	if res, _ := s.Send(b, http.MethodPost, "/doctor/run", form); res.StatusCode != http.StatusConflict {
		t.Errorf("second run: got %d, want 409", res.StatusCode)
	}
	close(more)
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(text, "Copy report"); {
		if time.Now().After(deadline) {
			t.Fatalf("after the run: got %s, want the report", text)
		}
		_, text = s.Send(b, http.MethodGet, path, nil)
	}
	if !strings.Contains(text, `aria-label="Report without secrets">`+"\n") { // browsers drop the first line end
		t.Errorf("the report lacks a line end before its text: %s", text)
	}
	res, _ = s.Send(b, http.MethodPost, "/doctor/run", url.Values{"server": {"none"}})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("unknown server: got %d, want 404", res.StatusCode)
	}
}

// The page of a failed server and Explore begin the checks on the first visit, and only show them
// on the next visits.
func TestFailingServersOpenTheDoctor(t *testing.T) {
	mcptest.NoLeaks(t)
	var runs atomic.Int64
	s := consoletest.New(t, func(o *console.Options) {
		o.Examine = func(_ context.Context, server string, d *doctor.Options) (*doctor.Report, error) {
			runs.Add(1)
			d.End(doctor.Check{Name: "program", Status: doctor.Fail, Next: "install " + server})
			return &doctor.Report{}, nil
		}
	})
	v := s.Visitor()
	_, _ = v.Send(http.MethodPost, "/servers/restart", url.Values{"server": {"broken"}})
	v.Await("/server?server=broken", "install broken")
	v.Await("/explore?server=broken", "install broken")
	v.Await("/server?server=broken", "Copy report")
	if n := runs.Load(); n != 1 {
		t.Errorf("the doctor ran %d times, want once", n)
	}
	if text := v.See("/server?server=fs"); !strings.Contains(text, `<section id="examination" hidden>`) {
		t.Errorf("a server that does not fail: got %s", text)
	}
}

// A visit examines a server that fails again after a later failure, but neither for the same failure nor within a
// minute.
func TestLaterFailuresAreExaminedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		site := page.NewSite(nil, nil)
		defer site.End()
		d := doctorpage.New(site, func(context.Context, string, *doctor.Options) (*doctor.Report, error) {
			runs++
			return &doctor.Report{}, nil
		})
		row := &servers.Row{Name: "broken", State: status.CrashLoop, Since: time.Now()}
		visit := func(after time.Duration, want int) {
			t.Helper()
			<-time.After(after)
			d.Examination(site.Request(nil, nil, page.RoleOperator), row)
			if synctest.Wait(); runs != want {
				t.Errorf("the doctor ran %d times, want %d", runs, want)
			}
		}
		visit(0, 1)
		visit(time.Hour, 1)
		row.Since = time.Now()
		visit(time.Second, 2)
		row.Since = time.Now().Add(time.Second)
		visit(time.Second, 2)
		visit(time.Minute, 3)
	})
}

// The local user begins a login on the page of the doctor, which shows the login page to this person only. The
// checks go on when the login ends.
func TestDoctorLogsTheLocalUserIn(t *testing.T) {
	mcptest.NoLeaks(t)
	loggedIn := make(chan struct{})
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			if name := r.Header.Get("X-Person"); name != "" {
				return &mcp.Principal{Subject: name}, page.RoleOperator, nil
			}
			return nil, page.RoleOperator, nil
		}
		o.Examine = func(ctx context.Context, _ string, d *doctor.Options) (*doctor.Report, error) {
			if !d.Login {
				d.End(doctor.Check{Name: "register", Status: doctor.Skipped, NeedsLogin: true})
				return &doctor.Report{}, nil
			}
			if err := d.Open(ctx, "https://as.example/authorize?state=1"); err != nil {
				return nil, err
			}
			<-loggedIn
			d.End(doctor.Check{Name: "authorize", Status: doctor.OK})
			d.End(doctor.Check{Name: "negotiate", Status: doctor.OK, Seen: []string{"10 tools"}})
			return &doctor.Report{}, nil
		}
	})
	see := func(person ...string) func() string {
		return func() string {
			_, text := s.Send(s.Stranger(), http.MethodGet, "/doctor?server=fs", nil, person...)
			return text
		}
	}
	run := func(login string, person ...string) int {
		form := url.Values{"server": {"fs"}, "login": {login}}
		res, _ := s.Send(s.Stranger(), http.MethodPost, "/doctor/run", form, person...)
		return res.StatusCode
	}
	run("")
	if text := consoletest.Await(t, "Log in", see()); !strings.Contains(text, `name="login"`) {
		t.Errorf("got %s, want a button that begins a login", text)
	}
	text := see("X-Person", "bob")()
	if strings.Contains(text, `name="login"`) || !strings.Contains(text, "tab=login") {
		t.Errorf("another person: got %s, want a link to the login of the server", text)
	}
	if status := run("on", "X-Person", "bob"); status != http.StatusForbidden {
		t.Errorf("another person logs in: got %d, want 403", status)
	}
	run("on")
	consoletest.Await(t, "<strong>as.example</strong>", see())
	if text := see("X-Person", "bob")(); strings.Contains(text, "as.example") {
		t.Errorf("another person sees the login page: %s", text)
	}
	close(loggedIn)
	if text := consoletest.Await(t, "10 tools", see()); strings.Contains(text, "as.example") {
		t.Errorf("after the login: got %s", text)
	}
}
