package hosting

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// PrintServer prints the state of a server, and the reason of a failure.
func PrintServer(f *cmdutil.Factory, c *Config, name string, state status.State, err error) {
	reason, level := "", slog.LevelInfo
	if err != nil {
		reason = ": " + term.Shorten(term.CleanLine(c.Masked(eventReason(err))), MaxEventShown) + codeSuffix(state, err)
		level = slog.LevelWarn
	}
	shown := cmp.Or(term.Shorten(term.CleanLine(name), term.MaxNameShown), `""`)
	f.IO.Err.Event(level, fmt.Sprintf("patchbay: server %s: %s%s", shown, state, reason),
		slog.String("server", shown), slog.String("state", string(state)))
}

// eventReason returns the reason of an event, without the server and request that the line names.
func eventReason(err error) string {
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

// codeSuffix returns the code of an error, for which the documentation contains a page. It returns
// "" if the state already names the code.
func codeSuffix(state status.State, err error) string {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok || string(e.Code) == string(state) {
		return ""
	}
	return " (code " + string(e.Code) + ")"
}

// MaxEventShown bounds the error of a server in a line, in characters.
const MaxEventShown = 500
