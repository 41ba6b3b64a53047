package doctorpage_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
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
	page := "/doctor?" + form.Encode()
	if _, text := s.Send(b, http.MethodGet, page, nil); !strings.Contains(text, "Run the checks") {
		t.Errorf("before a run: got %s", text)
	}
	res, _ := s.Send(b, http.MethodPost, "/doctor/run", form)
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != page {
		t.Errorf("run: got %d, %v, want the page", res.StatusCode, res.Header)
	}
	<-begun
	_, text := s.Send(b, http.MethodGet, page, nil)
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
		_, text = s.Send(b, http.MethodGet, page, nil)
	}
	res, _ = s.Send(b, http.MethodPost, "/doctor/run", url.Values{"server": {"none"}})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("unknown server: got %d, want 404", res.StatusCode)
	}
}
