package oauthclient_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) { os.Exit(mcptest.Main(m)) }

var discardLog = slog.New(slog.DiscardHandler)
