package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A recordingObserver records what callers do.
type recordingObserver struct {
	mu       sync.Mutex // guards the fields below
	seen     []string
	sessions int
	began    int
}

func (o *recordingObserver) add(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, text)
}

func (o *recordingObserver) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

func (o *recordingObserver) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }

func (o *recordingObserver) End(_ context.Context, req *mcp.Request, out mcp.Outcome) {
	if !req.Via().Sent {
		o.add(req.Method + " " + out.Target)
	}
}

func (o *recordingObserver) SessionBegan(_ context.Context, v driver.Via) (ended func(cause error)) {
	if v.Sent {
		return func(error) {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions++
	o.began++
	return func(error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sessions--
	}
}

func (o *recordingObserver) Refused(status int, reason string) {
	o.add(fmt.Sprint(status, " ", reason))
}

// The observer of the host receives the requests and sessions of all routes.
func TestObserverReceivesRequestsOfAllRoutes(t *testing.T) {
	for _, d := range downstreams() {
		t.Run(d.name, func(t *testing.T) {
			o := &recordingObserver{}
			c := d.connect(t, newGateway(t, &upstreams{observer: o}, twoServers))
			if _, err := c.CallTool(t.Context(), "two__whoami", nil); err != nil {
				t.Fatal(err)
			}
			if got := o.take(); !slices.Contains(got, "tools/call two__whoami") {
				t.Errorf("got %q, want the call", got)
			}
			if want := c.Revision() < "2026-07-28"; want != (o.began == 1) {
				t.Errorf("%d sessions of revision %s have begun", o.began, c.Revision())
			}
		})
	}
}

// It receives the requests that the gateway refuses itself, as those that the transport refuses.
func TestObserverReceivesRefusals(t *testing.T) {
	o := &recordingObserver{}
	as := newIssuer(t, publicURL+"/mcp")
	g := gateway.New((&upstreams{observer: o}).newHost(t, twoServers), as.options(publicURL))
	h := g.Handler()
	token := "Bearer " + as.token(t, "ann", publicURL+"/mcp", "code")
	for _, test := range []struct {
		path, authorization, want string
	}{
		{"/mcp", "", "401 Unauthorized"},
		{"/mcp", "Bearer patchbay_" + gateway.NewKey(), "401 Unauthorized"},
		{"/mcp", "Bearer " + gateway.NewKey(), "401 Unauthorized"},
		{"/mcp", token, "403 Forbidden"},
		{"/mcp/s/unknown", "Bearer " + key, "404 Not Found"},
	} {
		header := []string{"Authorization", test.authorization}
		if test.authorization == "" {
			header = nil
		}
		w := request(h, "POST", test.path, header...)
		if got := o.take(); len(got) != 1 || got[0] != test.want || !slices.Contains([]int{401, 403, 404}, w.Code) {
			t.Errorf("%s with %.12q: got %q, status %d, want %s once", test.path, test.authorization, got, w.Code, test.want)
		}
	}
	for range 40 {
		send(h, "POST", "/mcp", listTools, "Authorization", "Bearer patchbay_"+gateway.NewKey())
	}
	if got := o.take(); !slices.Contains(got, fmt.Sprint(http.StatusTooManyRequests, " ", http.StatusText(http.StatusTooManyRequests))) {
		t.Errorf("got %q, want 429 too", got)
	}
}
