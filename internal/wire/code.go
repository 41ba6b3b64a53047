package wire

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Error codes of JSON-RPC, besides the codes of a [jsonrpc.DecodeError].
const (
	// CodeMethodNotFound: the receiver does not support the method.
	CodeMethodNotFound = -32601
	// CodeInvalidParams: the params are not valid for the method.
	CodeInvalidParams = -32602
	// CodeInternalError: the receiver failed.
	CodeInternalError = -32603
)

// Error codes that the protocol adds to the codes of JSON-RPC. [Revision.HasCode] reports which
// revisions define them.
const (
	// CodeHeaderMismatch: the HTTP headers of a request contradict its body, or a required header
	// is missing.
	CodeHeaderMismatch = -32020
	// CodeMissingCapability: the request needs a capability that the client did not declare in it.
	// The error's data names the capabilities under `requiredCapabilities`.
	CodeMissingCapability = -32021
	// CodeUnsupportedVersion: the server does not support the request's revision. The error's data
	// lists the supported revisions under `supported`.
	CodeUnsupportedVersion = -32022
	// CodeResourceNotFoundLegacy: there is no such resource, in the legacy era. The modern era
	// defines invalid params instead; clients understand both.
	CodeResourceNotFoundLegacy = -32002
	// CodeURLElicitationRequired: the request requires URL elicitations that the error's data
	// lists.
	CodeURLElicitationRequired = -32042
	// CodeUserRejected: the user rejected a sampling request.
	CodeUserRejected = -1
)

// UnsupportedVersion returns the error for a request whose envelope names a revision that is
// unknown or lacks envelopes. Its data contains the requested version and the supported revisions,
// newest first: the revisions of accepted, which is given oldest first, or all if it is nil. If the
// requested revision is supported with a session, the list contains only the revisions with
// envelopes, unless there are no such revisions.
//
// Spec: basic/versioning#protocol-version-negotiation (2026-07-28)
func UnsupportedVersion(requested string, accepted []Revision) *jsonrpc.Error {
	if accepted == nil {
		accepted = Revisions()
	}
	supported := slices.Clone(accepted)
	isLegacy := func(r Revision) bool { return !r.Modern() }
	if r, known := ParseRevision(requested); known && isLegacy(r) && !isLegacy(supported[len(supported)-1]) {
		supported = slices.DeleteFunc(supported, isLegacy)
	}
	slices.Reverse(supported)
	data := []byte(`{"supported":[`)
	for i, r := range supported {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonscan.AppendQuote(data, r.String())
	}
	data = append(data, `],"requested":`...)
	data = jsonscan.AppendQuote(data, requested)
	data = append(data, '}')
	return &jsonrpc.Error{Code: CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}

// PermittedError returns e, or a copy with another code if the revision does not permit the code
// for the method. Modern revisions reserve -32099 to -32020 for codes of the specification, and do
// not permit two codes of the legacy era. All codes are permitted for methods of extensions, whose
// specifications may define codes.
//
// Spec: basic (2026-07-28), Error Codes
func (r Revision) PermittedError(method string, e *jsonrpc.Error) *jsonrpc.Error {
	reserved := e.Code >= -32099 && e.Code <= -32020 || e.Code == CodeResourceNotFoundLegacy
	_, core := r.Method(method)
	if !reserved || !core || !r.Modern() || r.HasCode(e.Code) {
		return e
	}
	permitted := *e
	switch e.Code {
	case CodeResourceNotFoundLegacy:
		permitted.Code = CodeInvalidParams
	case CodeURLElicitationRequired:
		permitted.Code = jsonrpc.CodeInvalidRequest
	default:
		permitted.Code = CodeInternalError
	}
	return &permitted
}

func invalidParams(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: CodeInvalidParams, Message: message}
}

// A HandlerError is an error with the code of an unknown method that the handler of a known method
// returned. HTTP transports answer it with status 200, and errors of unknown methods with 404.
type HandlerError struct{ Err error }

// Error returns the text of the error.
func (e *HandlerError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the handler.
func (e *HandlerError) Unwrap() error { return e.Err }
