package oauthclient_test

import (
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// browserCommand is the command that opens pages. A test may start itself by this name.
var browserCommand = map[string]string{"darwin": "open", "linux": "xdg-open"}[runtime.GOOS]

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == browserCommand {
		if _, err := http.Get(os.Args[1]); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(testhome.Main(m, mcptest.Main))
}

var discardLog = slog.New(slog.DiscardHandler)
