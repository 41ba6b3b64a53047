package target_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
)

func TestCredentialsOfFlagsAreMasked(t *testing.T) {
	t.Parallel()
	for _, to := range []*target.Target{
		{URL: "http://ann:pass-1@host/mcp?token=query-2&tenant=demo",
			Header: http.Header{"Authorization": {"Bearer header-3"}, "X-Tenant": {"demo"}}},
		{Command: []string{"demo", "--token", "pass-1", "--api-key=query-2", "-p", "abc"},
			Environment: []string{"API_KEY=header-3", "MODE=demo"}},
	} {
		to.HideFlags()
		got := to.String() + to.Masked(" pass-1 query-2 header-3 demo")
		for _, secret := range []string{"pass-1", "query-2", "header-3"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s contains %s", got, secret)
			}
		}
		if !strings.HasSuffix(got, " demo") {
			t.Errorf("%s hides a value that is no secret", got)
		}
	}
}
