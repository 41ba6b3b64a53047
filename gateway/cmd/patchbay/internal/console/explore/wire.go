package explore

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/traffic"
)

const (
	// stderrBrief limits the lines of standard error for a server that does not respond, stderrLines beside a tool.
	stderrBrief, stderrLines = 8, 100
	// maxWired bounds the exchanges beside a tool.
	maxWired = 20
)

// A wire contains the data of the panel beside the item: the last exchanges with the server.
type wire struct {
	Exchanges []*traffic.Recent // the newest first
	Lines     []string          // of standard error, the newest last
}

// version changes with the content of the panel.
func (w *wire) version() string {
	if w == nil {
		return "none"
	}
	var b strings.Builder
	for _, x := range w.Exchanges {
		b.WriteString(x.Version() + " ")
	}
	return fmt.Sprint(b.String(), len(w.Lines), w.Last())
}

// Last returns the last line of standard error, or "".
func (w *wire) Last() string {
	if len(w.Lines) == 0 {
		return ""
	}
	return w.Lines[len(w.Lines)-1]
}
