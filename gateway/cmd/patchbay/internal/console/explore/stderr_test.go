package explore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// talking is an admin API with a line of standard error.
type talking struct{ http.RoundTripper }

func (a talking) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/stderr") {
		return a.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"lines":[{"text":"the last line"}]}`))}, nil
}

// The standard error of a server that does not respond, and the observations of the doctor, are for operators who
// may connect to it. Others see the next step.
func TestStandardErrorIsForOperatorsWhoMayConnect(t *testing.T) {
	mcptest.NoLeaks(t)
	var runs atomic.Int64
	s := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client { return &http.Client{Transport: talking{admin(p).Transport}} }
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			who, role, _ := strings.Cut(r.Header.Get("X-Person"), " ")
			return &mcp.Principal{Subject: who}, page.Role(role), nil
		}
		o.Opens = func(p *mcp.Principal, _ string) bool { return p.Subject != "eve" }
		o.Connect = func(_ context.Context, _ string, p *mcp.Principal) (mcp.Transport, error) {
			if p.Subject == "eve" {
				return nil, errors.New("unknown server for eve")
			}
			return mcp.Command("/no/such/program"), nil
		}
		o.Examine = func(_ context.Context, _ string, d *doctor.Options) (*doctor.Report, error) {
			runs.Add(1)
			seen := doctor.Check{Name: "start", Status: doctor.Fail, Seen: []string{"PATH /seen"}, Next: "correct it"}
			d.End(seen)
			return &doctor.Report{Target: "x", Checks: []doctor.Check{seen}}, nil
		}
	})
	see := func(path, who string) func() string {
		return func() string {
			_, text := s.Send(s.Stranger(), http.MethodGet, path+"?server=broken", nil, "X-Person", who)
			return text
		}
	}
	broken := url.Values{"server": {"broken"}}
	s.Send(s.Stranger(), http.MethodPost, "/servers/restart", broken, "X-Person", "ann operator")
	consoletest.Await(t, `id="examination" class="card"`, see("/server", "bob viewer"))
	check := func(path, who, text string) {
		for _, output := range []string{"the last line", "PATH /seen", "Copy report"} {
			if strings.Contains(text, output) {
				t.Errorf("%s, %s: the page shows %s", path, who, output)
			}
		}
	}
	failures := map[string]string{"bob viewer": "/no/such/program", "eve operator": "unknown server for eve"}
	for who, failure := range failures {
		check("/explore", who, consoletest.Await(t, failure, see("/explore", who)))
	}
	if n := runs.Load(); n != 0 {
		t.Errorf("persons who do not read the output began %d examinations", n)
	}
	for _, want := range []string{"the last line", "PATH /seen", "Copy report"} {
		consoletest.Await(t, want, see("/explore", "ann operator"))
	}
	for _, at := range [][2]string{{"/explore", "bob viewer"}, {"/explore", "eve operator"}, {"/server", "bob viewer"},
		{"/server", "eve operator"}, {"/doctor", "bob viewer"}, {"/doctor", "eve operator"}} {
		check(at[0], at[1], consoletest.Await(t, "correct it", see(at[0], at[1])))
	}
}
