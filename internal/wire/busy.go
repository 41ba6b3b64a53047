package wire

import "github.com/patchbay-mcp/patchbay/jsonrpc"

// CodeBusy is the error code for a request that did not run because too many are in progress. The
// client can send it again after `retryAfterMs` of the error's data, in milliseconds. No revision
// defines such a code. The code is outside the range that JSON-RPC reserves, and uses the number of
// the HTTP status.
const CodeBusy = 429

// Busy returns an error with CodeBusy. Its data asks the client to wait for a second. That is an
// estimate, since the time that handlers take is unknown.
func Busy(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: CodeBusy, Message: message, Data: []byte(`{"retryAfterMs":1000}`)}
}
