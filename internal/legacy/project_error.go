package legacy

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// projectError returns an error as a client of rev knows it. An error code that the revision does
// not have is replaced; the error's data is kept. It does not change e.
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

// namesURI reports whether the data of an error names a resource. Of the errors of resources/read,
// only the one for a missing resource does.
func namesURI(data []byte) bool {
	uri, _ := jsonscan.Get(data, "uri")
	return jsonscan.Kind(uri) == '"'
}

// required lists the capabilities that an error's data requires, such as ": elicitation.url".
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
