package apps_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A page that sends notifications without pause does not fill the host's log.
func TestNotificationsOfPagesAreLimitedByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sent, most = 5000, 120
		var log strings.Builder
		logged, resized := 0, 0
		c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
		f := open(t, c, slog.New(slog.NewTextHandler(&log, nil)), &apps.BridgeOptions{
			Log:         func(context.Context, mcp.LoggingLevel, json.RawMessage) { logged++ },
			SizeChanged: func(float64, float64) { resized++ },
		})
		f.handshake()
		time.Sleep(time.Second)
		for range sent {
			f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			f.send(`{"jsonrpc":"2.0","method":"ui/notifications/size-changed","params":{"width":1,"height":1}}`)
			f.send(`not JSON`)
		}
		if logged+resized > most || logged == 0 || resized == 0 {
			t.Errorf("got %d log messages and %d sizes, want 1 to %d in all", logged, resized, most)
		}
		if lines := strings.Count(log.String(), "malformed"); lines > most {
			t.Errorf("the log has %d lines about malformed messages, want at most %d", lines, most)
		}
		if _, code := f.request("ui/other", `{}`); code != mcp.CodeMethodNotFound {
			t.Errorf("a request meanwhile: got code %d, want -32601", code)
		}
		time.Sleep(time.Second)
		logged = 0
		f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
		if logged != 1 || !strings.Contains(log.String(), "dropped=") {
			t.Errorf("after a second: got %d log messages, want 1 and a line about those that were dropped", logged)
		}
	})
}
