package mcphttp

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/limitedlog"
)

// A limitedLog logs what clients can cause.
type limitedLog struct{ limitedlog.Log }

func (l *limitedLog) refused(r *http.Request, why string) {
	if l.Admit() {
		l.Logger.WarnContext(r.Context(), "mcphttp: request refused", "reason", why,
			"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	}
}

func (l *limitedLog) error(ctx context.Context, message string, err error) {
	if l.Admit() {
		l.Logger.ErrorContext(ctx, message, "error", err)
	}
}
