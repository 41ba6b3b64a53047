package peer

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxReason is the number of bytes of a cancellation's reason that are kept for the log.
const maxReason = 1 << 10

// ParseCancelled parses the params of notifications/cancelled: the id of the request, and the
// reason if there is one. It reports false for params without a valid id; such a notification is
// ignored.
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
	if err := id.UnmarshalJSON(raw); err != nil || id.IsZero() {
		return id, "", false
	}
	if raw, ok := jsonscan.Get(params, "reason"); ok && jsonscan.Kind(raw) == '"' {
		// An invalid reason does not invalidate the cancellation.
		reason, _ = jsonscan.Unquote(raw)
	}
	return id, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), true
}
