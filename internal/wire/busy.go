package wire

import "github.com/patchbay-mcp/patchbay/jsonrpc"

// CodeBusy is the error code for a request that has not run, because too many are in progress, and that
// can be sent again after `retryAfterMs` of the error's data. No revision defines such a code. This one
// is outside the codes that JSON-RPC reserves, and has the number of the HTTP status.
const CodeBusy = 429

// Busy returns the error for a request that can be sent again: its data asks to wait a second. That is
// an estimate, since the time that handlers take is unknown.
func Busy(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: CodeBusy, Message: message, Data: []byte(`{"retryAfterMs":1000}`)}
}
