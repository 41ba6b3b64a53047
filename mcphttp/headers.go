package mcphttp

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Canonical names of the headers that the protocol gives a meaning: the keys of an http.Header.
const (
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerParam     = "Mcp-Param-" // and a name that the tool's schema chose
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-Id"
)

// nameParams are the methods of official extensions whose subject clients repeat in Mcp-Name, with the member of params
// that names it. Those of the core are in package wire.
var nameParams = map[string]string{
	"tasks/get":    "taskId",
	"tasks/update": "taskId",
	"tasks/cancel": "taskId",
}

// checkMirrors compares the standard headers of a request with its body. Intermediaries decide by the headers and
// handlers act on the body, so the two must say the same.
//
// Spec: basic/transports/streamable-http#server-validation (2026-07-28)
func checkMirrors(head *head, req *mcp.Request) *mcp.Error {
	switch {
	case !head.version.sent:
		return mismatch("header " + headerVersion + " is missing")
	case head.version.value != req.Revision():
		return mismatch("header " + headerVersion + " differs from the version in params._meta")
	case !head.method.sent:
		return mismatch("header " + headerMethod + " is missing")
	case head.method.value != req.Method:
		return mismatch("header " + headerMethod + " differs from the method in the body")
	}
	return checkName(head.name, req)
}

// checkName compares Mcp-Name with the subject of the request.
func checkName(header field, req *mcp.Request) *mcp.Error {
	method, _ := wire.Latest().Method(req.Method)
	param := method.NameParam
	if param == "" {
		if param = nameParams[req.Method]; param == "" {
			return nil
		}
	}
	name, named := req.Param(param)
	switch {
	case !header.sent && named:
		return mismatch("header " + headerName + " is missing")
	case !header.sent:
		return nil // what is missing in both places is for the method to refuse
	}
	value, err := decodeHeaderValue(header.value)
	if err != nil {
		return mismatch("header " + headerName + ": " + err.Error())
	}
	if !equalsString(name, value) {
		return mismatch("header " + headerName + " differs from params." + param)
	}
	return nil
}

// checkParams compares the Mcp-Param headers of a tools/call with the tool's arguments.
//
// Spec: basic/transports/streamable-http#server-behavior-for-custom-headers (2026-07-28)
func checkParams(ctx context.Context, h mcp.Handler, head *head, req *mcp.Request) *mcp.Error {
	mirror, ok := h.(interface {
		HeaderParams(ctx context.Context, req *mcp.Request, tool string) []mcp.HeaderParam
	})
	if !ok || req.Method != wire.MethodToolsCall {
		return nil
	}
	if !head.name.sent {
		return nil // no tool has no name
	}
	tool, err := decodeHeaderValue(head.name.value) // as in the body: that was compared before
	if err != nil {
		return nil
	}
	mirrored := mirror.HeaderParams(ctx, req, tool)
	if len(mirrored) == 0 {
		return nil
	}
	arguments, _ := req.Param("arguments")
	for _, p := range mirrored {
		if err := checkParam(req.Header, p, arguments); err != nil {
			return err
		}
	}
	return nil
}

func checkParam(header http.Header, p mcp.HeaderParam, arguments []byte) *mcp.Error {
	name := headerParam + p.Header
	text, sent := first(header, http.CanonicalHeaderKey(name))
	argument := arguments
	for _, key := range p.Path {
		argument, _ = jsonscan.Get(argument, key)
	}
	provided := len(argument) > 0 && jsonscan.Kind(argument) != 'n'
	switch {
	case !sent && !provided:
		return nil
	case !sent:
		return mismatch("header " + name + " is missing")
	}
	value, err := decodeHeaderValue(text)
	if err != nil {
		return mismatch("header " + name + ": " + err.Error())
	}
	if !provided || !equalsArgument(argument, value) {
		return mismatch("header " + name + " differs from the argument in the body")
	}
	return nil
}

// equalsArgument compares a header with an argument by the argument's own type: whether that is the type the tool
// wants is for the tool to say.
func equalsArgument(argument []byte, value string) bool {
	switch jsonscan.Kind(argument) {
	case '"':
		return equalsString(argument, value)
	case '0':
		return equalIntegers(string(argument), value)
	case 't', 'f':
		return string(argument) == value
	}
	return false
}

// equalsString reports whether a raw JSON value is the string s.
func equalsString(raw []byte, s string) bool {
	if jsonscan.Kind(raw) != '"' {
		return false
	}
	if string(raw[1:len(raw)-1]) == s {
		// The same bytes are the same string unless there are escapes, and then the string is another one.
		for _, c := range raw[1 : len(raw)-1] {
			if c == '\\' {
				return false
			}
		}
		return true
	}
	text, err := jsonscan.Unquote(raw)
	return err == nil && text == s
}

// first returns the value of a header by its canonical name, and whether it was sent.
func first(header http.Header, name string) (string, bool) {
	if values := header[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

func mismatch(message string) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeHeaderMismatch, Message: message}
}
