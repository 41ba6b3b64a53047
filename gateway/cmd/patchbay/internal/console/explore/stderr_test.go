package explore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
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

// The standard error of a server that does not respond is for operators who may connect to it.
func TestStandardErrorIsForOperatorsWhoMayConnect(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client { return &http.Client{Transport: talking{admin(p).Transport}} }
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			who, role, _ := strings.Cut(r.Header.Get("X-Person"), " ")
			return &mcp.Principal{Subject: who}, page.Role(role), nil
		}
		o.Connect = func(_ context.Context, _ string, p *mcp.Principal) (mcp.Transport, error) {
			if p.Subject == "eve" {
				return nil, errors.New("unknown server for eve")
			}
			return mcp.Command("/no/such/program"), nil
		}
	})
	for who, want := range map[string]bool{"ann operator": true, "bob viewer": false, "eve operator": false} {
		failure := "/no/such/program"
		if strings.HasPrefix(who, "eve") {
			failure = "unknown server for eve"
		}
		shown := consoletest.Await(t, failure, func() string {
			_, text := s.Send(s.Stranger(), http.MethodGet, "/explore?server=fs", nil, "X-Person", who)
			if strings.Contains(text, "the last line") && !want {
				t.Errorf("%s: the page shows standard error", who)
			}
			return text
		})
		if strings.Contains(shown, "the last line") != want {
			t.Errorf("%s: want standard error: %t, got\n%s", who, want, shown)
		}
	}
}
