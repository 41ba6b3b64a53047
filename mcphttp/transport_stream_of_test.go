package mcphttp_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type streamName struct{}

// Messages on the stream of a request come with its context, also after the stream was resumed.
// Those of the standalone stream, and of the response to initialize, come without one.
func TestMessagesComeWithTheContextOfTheirStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notification = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`
		var s fakeServer
		var id string
		s.post = func(w http.ResponseWriter, r *http.Request) {
			id = idOf(r)
			writeEvents(w, notification+`posted"}}`, "id: e0\nretry: 100\ndata:")
		}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Last-Event-Id") == "" {
				writeEvents(w, notification+`standalone"}}`)
				waitForDisconnect(w, r)
				return
			}
			writeEvents(w, notification+`resumed"}}`, eventResult(id))
		}
		tr := newMemTransport(t, s.ServeHTTP, &mcphttp.TransportOptions{})
		var got sync.Map
		ctx := driver.WithReceiver(t.Context(), func(of context.Context, m *jsonrpc.Message) {
			var name any = "none"
			if of != nil {
				name = of.Value(streamName{})
			}
			got.Store(string(m.Params), name)
		})
		conn, err := tr.OpenSession(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &sessionClient{SessionConn: conn, t: t}
		c.initialize(november2025)
		named := context.WithValue(t.Context(), streamName{}, "call")
		if _, err := c.try(named, "tools/call", `{}`); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{"posted": "call", "resumed": "call", "standalone": "none"} {
			if stream, _ := got.Load(`{"data":"` + text + `"}`); stream != want {
				t.Errorf("%s: got the stream of %v, want %s", text, stream, want)
			}
		}
	})
}
