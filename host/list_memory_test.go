package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const mb = 1_000_000

// openLarge returns a host of a server that lists size tools of 1 MB for each caller. The tools contain a text
// of the caller.
func openLarge(t *testing.T, settings string, size func(caller string) (megabytes int, text string)) *host.Host {
	return openFile(t, map[string]any{"big": map[string]string{"command": "big"}}, settings, &host.Options{
		Dial: func(ctx context.Context, _ *config.Server) (mcp.Transport, error) {
			tools, text := size(host.CallerFrom(ctx).Principal.Subject)
			filler := strings.Repeat(text, mb/len(text))
			s := &hostile{answer: on("tools/list", func(req *mcp.Request) string {
				first := 0
				raw, _ := req.Param("cursor")
				_, _ = fmt.Sscanf(string(raw), `"%d"`, &first)
				last := min(first+10, tools)
				var b strings.Builder
				for n := first; n < last; n++ {
					fmt.Fprintf(&b, `,{"name":"t%d","description":%q,"inputSchema":{"type":"object"}}`, n, filler)
				}
				next := ""
				if last < tools {
					next = fmt.Sprintf(`,"nextCursor":"%d"`, last)
				}
				return `{"resultType":"complete","tools":[` + strings.TrimPrefix(b.String(), ",") + `],"ttlMs":0,` +
					`"cacheScope":"private"` + next + `}`
			})}
			return mcp.InMemory(s), nil
		},
	})
}

// listTools returns the first page of tools/list for a caller.
func listTools(t *testing.T, h *host.Host, subject string) (string, error) {
	t.Helper()
	raw, err := client(t, h, &policy.Caller{Principal: principal(subject), Server: "big"}).Do(t.Context(), "tools/list", nil)
	return string(raw), err
}

// wantListed tests that a caller gets a list with a text.
func wantListed(t *testing.T, h *host.Host, subject, text string) {
	t.Helper()
	if raw, err := listTools(t, h, subject); err != nil || !strings.Contains(raw, text+text) {
		t.Errorf("%s: got %d bytes, %v, want a list with %q", subject, len(raw), err, text)
	}
}

// The callers of a server share equal lists, even if each caller has its own process.
func TestCallersShareEqualLists(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		h := openLarge(t, "{}", func(string) (int, string) { return 8, "same" })
		for n := range 12 {
			wantListed(t, h, fmt.Sprint("c", n), "same")
		}
		u := upstream(t, h, "big")
		wantInstances(t, u, 12, 12)
		if got := host.ListBytes(u); got < 8*mb || got > 9*mb {
			t.Errorf("got lists of %d bytes, want those of one caller", got)
		}
	})
}

// The size of the lists of all callers of a server is limited. A list beyond the limit is an error, until
// other callers have no connection.
func TestListsOfAllCallersHaveABound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		h := openLarge(t, `{"servers":{"big":{"idle":"10m"}}}`, func(caller string) (int, string) {
			if caller == "small" {
				return 1, caller
			}
			return 60, caller
		})
		u := upstream(t, h, "big")
		for n := range 3 {
			name := fmt.Sprint("c", n)
			wantListed(t, h, name, name)
		}
		for range 3 {
			raw, err := listTools(t, h, "c3")
			if e, ok := errors.AsType[*mcp.Error](err); !ok || !strings.Contains(string(e.Data), `"code":"limited"`) {
				t.Fatalf("got %.200s, %v, want an error with the code limited", raw, err)
			}
		}
		wantListed(t, h, "small", "small")
		wantListed(t, h, "c0", "c0")
		if got := host.ListBytes(u); got < 180*mb || got > 185*mb {
			t.Errorf("got lists of %d bytes, want 180 MB", got)
		}
		time.Sleep(time.Hour)
		wantInstances(t, u, 0, u.Status().Starts)
		if got := host.ListBytes(u); got > 3*mb {
			t.Errorf("got lists of %d bytes without connections", got)
		}
		wantListed(t, h, "c3", "c3")
	})
}
