package legacy

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// projectError returns how a client of rev is told that its request failed. An error code that the revision does not have
// becomes one that it has; the error's data stays. The error e is not changed.
//
// Spec: server/resources#error-handling
func projectError(rev wire.Revision, method string, e *jsonrpc.Error) *jsonrpc.Error {
	if e == nil {
		return nil
	}
	code, message := e.Code, e.Message
	switch {
	case code == jsonrpc.CodeInvalidParams && method == wire.MethodResourcesRead && namesURI(e.Data):
		if rev.HasCode(wire.CodeResourceNotFoundLegacy) {
			code = wire.CodeResourceNotFoundLegacy
		}
	case rev.HasCode(code):
	case code == wire.CodeMissingCapability:
		code = jsonrpc.CodeInvalidRequest
		message = "the client did not declare a capability that this request needs" + required(e.Data)
	case code == wire.CodeUnsupportedVersion:
		code = jsonrpc.CodeInvalidParams
	case code == wire.CodeHeaderMismatch, code == wire.CodeURLElicitationRequired:
		code = jsonrpc.CodeInvalidRequest
	}
	if code == e.Code && message == e.Message {
		return e
	}
	projected := *e
	projected.Code, projected.Message = code, message
	return &projected
}

// namesURI reports whether the data of an error says which resource it is about. Of the errors of resources/read, the one
// for a missing resource does.
func namesURI(data []byte) bool {
	uri, _ := jsonscan.Get(data, "uri")
	return jsonscan.Kind(uri) == '"'
}

// required names the capabilities that an error's data asks for, such as ": elicitation.url".
func required(data []byte) string {
	capabilities, _ := jsonscan.Get(data, "requiredCapabilities")
	var names []string
	for name, value := range jsonscan.Members(capabilities) {
		before := len(names)
		for part := range jsonscan.Members(value) {
			names = append(names, string(name)+"."+string(part))
		}
		if len(names) == before {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}
