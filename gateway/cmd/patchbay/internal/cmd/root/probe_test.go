package root

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newSessionServer returns the URL of a server with two revisions of the session era. It answers
// the later attempts of probe only when all of them have arrived, so that sequential attempts would
// block.
func newSessionServer(t *testing.T) string {
	t.Helper()
	const attempts = 4 // of later sessions
	var opened atomic.Int64
	allOpened := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		w.Header().Set("Content-Type", "application/json")
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if m.Method != "initialize" {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+
				`,"error":{"code":-32601,"message":"no such method"}}`)
			return
		}
		switch opened.Add(1) {
		case attempts:
			close(allOpened)
		case 1: // the first connection
		default:
			select {
			case <-allOpened:
			case <-r.Context().Done():
			}
		}
		version := m.Params.ProtocolVersion
		if version != "2025-06-18" {
			version = "2025-03-26"
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"protocolVersion":"`+version+
			`","capabilities":{},"serverInfo":{"name":"old","version":"1"}}}`)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

func TestProbeTriesRevisionsConcurrently(t *testing.T) {
	mcptest.NoLeaks(t)
	var got struct {
		Revision  string
		Eras      []string
		Revisions []struct {
			Revision string
			Spoken   bool
			Error    string
		}
	}
	// Sequential attempts would end with the time limit; concurrent ones need it on a slow machine only.
	o := patchbay(t, "", "probe", "--json", "--timeout", "1m", newSessionServer(t))
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.status != exit.OK {
		t.Fatalf("got %d, %s%s, want %d: %v", o.status, o.stdout, o.stderr, exit.OK, err)
	}
	var supported []string
	for _, r := range got.Revisions {
		if r.Spoken {
			supported = append(supported, r.Revision)
		}
		if r.Error != "" {
			t.Errorf("%s: error %s, want none", r.Revision, r.Error)
		}
	}
	if got.Revision != "2025-03-26" || !cmp.Equal(supported, []string{"2025-06-18", "2025-03-26"}) ||
		!cmp.Equal(got.Eras, []string{"session"}) {
		t.Errorf("got %+v, want 2025-03-26, and 2025-06-18 and 2025-03-26 as supported", got)
	}
	if len(got.Revisions) != len(connect.Revisions()) {
		t.Errorf("%d revisions were tried, want %d", len(got.Revisions), len(connect.Revisions()))
	}
}

// A slowTransport takes three seconds to close.
type slowTransport struct{ mcp.Transport }

func (s slowTransport) Close() error {
	time.Sleep(3 * time.Second)
	return s.Transport.Close()
}

func TestStatusLineIsShownWhileASlowServerExits(t *testing.T) {
	for name, slow := range map[string]bool{"slow": true, "fast": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				p := newRun(strings.NewReader(""), &stdout, &stderr)
				p.IO.Err.Terminal = true
				transport := mcp.InMemory(demo.New("1.0", nil).Server)
				if slow {
					transport = slowTransport{transport}
				}
				c, err := mcp.Connect(t.Context(), transport, nil)
				if err != nil {
					t.Fatal(err)
				}
				p.Client.Close(c)
				if shown := strings.Contains(stderr.String(), "waiting for the server"); shown != slow ||
					p.IO.Err.Drawn {
					t.Errorf("standard error %q, want a status line: %t", stderr.String(), slow)
				}
			})
		})
	}
}
