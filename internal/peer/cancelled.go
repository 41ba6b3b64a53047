package peer

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxReason bounds the part of a cancellation's reason that is kept: it ends up in logs.
const maxReason = 1 << 10

// ParseCancelled reads the params of a notification that cancels a request: which one, and why if that is said. It
// reports false for params that name no request; such a notification is ignored.
//
// Spec: basic/patterns/cancellation#error-handling (2026-07-28)
func ParseCancelled(params []byte) (id jsonrpc.ID, reason string, ok bool) {
	if jsonscan.Kind(params) != '{' {
		return id, "", false
	}
	raw, ok := jsonscan.Get(params, "requestId")
	if !ok {
		return id, "", false
	}
	id, err := jsonrpc.ParseID(raw)
	if err != nil {
		return id, "", false
	}
	if raw, ok := jsonscan.Get(params, "reason"); ok && jsonscan.Kind(raw) == '"' {
		// What cannot be read is not worth refusing a cancellation for.
		reason, _ = jsonscan.Unquote(raw)
	}
	return id, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), true
}
