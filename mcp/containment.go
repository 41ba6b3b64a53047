package mcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"runtime/debug"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// recovered is deferred around every function that belongs to the user. A panic becomes an error with an incident id,
// which is all that the peer sees; the value and the stack are logged under the same id.
func recovered(ctx context.Context, log *slog.Logger, what string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	var id [8]byte
	rand.Read(id[:])
	incident := hex.EncodeToString(id[:])
	log.ErrorContext(ctx, "mcp: panic contained", "in", what, "incident", incident, "value", value, "stack", string(debug.Stack()))
	data := append(jsonscan.AppendQuote([]byte(`{"incident":`), incident), '}')
	*err = &Error{Code: CodeInternalError, Message: "internal error", Data: data}
}
