package wire

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// The error codes that the protocol adds to those of JSON-RPC. Which revision has which is [Revision.HasCode]'s to say.
const (
	// CodeHeaderMismatch: the HTTP headers of a request contradict its body, or one is missing.
	CodeHeaderMismatch = -32020
	// CodeMissingCapability: the request needs a capability that the client did not declare on it. The error's data
	// names what is missing under `requiredCapabilities`.
	CodeMissingCapability = -32021
	// CodeUnsupportedVersion: the server does not speak the request's revision. The error's data lists those it does
	// speak under `supported`.
	CodeUnsupportedVersion = -32022
	// CodeResourceNotFoundLegacy: no such resource, in the legacy era. Later it is an invalid parameter; clients
	// understand both.
	CodeResourceNotFoundLegacy = -32002
	// CodeURLElicitationRequired: the request cannot go on until the user has visited the URLs in the error's data.
	CodeURLElicitationRequired = -32042
	// CodeUserRejected: the user refused a sampling request.
	CodeUserRejected = -1
)

// UnsupportedVersion returns the error for a request whose envelope names a revision that cannot be spoken in that form.
// Its data echoes the requested version and lists the supported revisions, newest first. One that is spoken, but only in
// the form of its own era, is not met with itself: the list then holds the revisions that have envelopes.
//
// Spec: basic/versioning#protocol-version-negotiation (2026-07-28)
func UnsupportedVersion(requested string) *jsonrpc.Error {
	supported := Revisions()
	if _, known := ParseRevision(requested); known {
		supported = slices.DeleteFunc(supported, func(r Revision) bool { return !r.Modern() })
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

func invalidParams(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}
