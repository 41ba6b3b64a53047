package mcphttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Canonical names of the protocol's headers, as the keys of an http.Header.
const (
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerParam     = "Mcp-Param-" // a prefix; the schema of the tool contains the rest
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-Id"
)

// nameParams holds the methods of official extensions whose Mcp-Name header mirrors a member of
// params, and that member. Package wire holds the methods of the core protocol.
var nameParams = map[string]string{
	"tasks/get":    "taskId",
	"tasks/update": "taskId",
	"tasks/cancel": "taskId",
}

// nameParam returns the member of the params of a method that Mcp-Name mirrors, or "".
func nameParam(method string) string {
	m, _ := wire.Latest().Method(method)
	return cmp.Or(m.NameParam, nameParams[method])
}

// checkHeaders compares the standard headers of a request with its body. Intermediaries decide by
// the headers and handlers act on the body, so the two must agree. Spec:
// basic/transports/streamable-http#server-validation (2026-07-28)
func checkHeaders(head *head, req *mcp.Request) *mcp.Error {
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

func checkName(header field, req *mcp.Request) *mcp.Error {
	param := nameParam(req.Method)
	if param == "" {
		return nil
	}
	name, named := req.Param(param)
	switch {
	case !header.sent && named:
		return mismatch("header " + headerName + " is missing")
	case !header.sent:
		return nil // the method refuses a request without it
	}
	value, err := decodeHeaderValue(header.value)
	if err != nil {
		return mismatch("header " + headerName + ": " + err.Error())
	}
	if !jsonscan.IsString(name, value) {
		return mismatch("header " + headerName + " differs from params." + param)
	}
	return nil
}

// checkParams compares the Mcp-Param headers of a tools/call with the tool's arguments. Spec:
// basic/transports/streamable-http#server-behavior-for-custom-headers (2026-07-28)
func checkParams(ctx context.Context, h mcp.Handler, head *head, req *mcp.Request) *mcp.Error {
	mirror, ok := h.(driver.HeaderParamHandler[*mcp.Request])
	if !ok || req.Method != wire.MethodToolsCall || !head.name.sent { // every tool is named
		return nil
	}
	tool, err := decodeHeaderValue(head.name.value) // equal to the name in the body
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

func checkParam(header http.Header, p driver.HeaderParam, arguments []byte) *mcp.Error {
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

// equalsArgument compares a header with an argument by the type of the argument. The tool checks
// whether that is the right type.
func equalsArgument(argument []byte, value string) bool {
	switch jsonscan.Kind(argument) {
	case '"':
		return jsonscan.IsString(argument, value)
	case '0':
		return equalIntegers(string(argument), value)
	case 't', 'f':
		return string(argument) == value
	}
	return false
}

// first returns the value of a header by its canonical name, and whether it was sent.
func first(header http.Header, name string) (string, bool) {
	if values := header[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

func mismatch(message string) *mcp.Error {
	return &mcp.Error{Code: driver.CodeHeaderMismatch, Message: message}
}

// The delimiters of a Base64 header value, for text that cannot be a header value itself. They are
// exact: any other spelling is plain text.
//
// Spec: basic/transports/streamable-http#value-encoding (2026-07-28)
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var (
	errHeaderCharacters = errors.New("invalid characters")
	errHeaderEncoding   = errors.New("invalid Base64 encoding")
)

// encodeHeaderValue encodes s, which must be valid UTF-8.
func encodeHeaderValue(s string) string {
	if isPlainValue(s) && !(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix)) {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

func decodeHeaderValue(v string) (string, error) {
	if !isPlainValue(v) {
		return "", errHeaderCharacters
	}
	encoded, ok := strings.CutPrefix(v, encodedPrefix)
	if !ok {
		return v, nil
	}
	if encoded, ok = strings.CutSuffix(encoded, encodedSuffix); !ok {
		return v, nil
	}
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || !utf8.Valid(text) {
		return "", errHeaderEncoding
	}
	return string(text), nil
}

// isPlainValue reports whether s can be a header value as it is: visible ASCII, with spaces and
// tabs inside only.
func isPlainValue(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c > ' ' && c < 0x7f:
		case (c == ' ' || c == '\t') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// hasControl reports whether s contains a control character, which no header value may contain.
// Spec: RFC 9110, section 5.5
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// maxSafeInteger is the largest integer that every JSON reader represents exactly. Mirrored
// integers must not exceed it.
const maxSafeInteger = 1<<53 - 1

// maxNumber is the length and the exponent above which a number is not compared, since parsing it
// would be slow.
const maxNumber = 1000

// equalIntegers reports whether two JSON numbers are the same integer in any notation: 42, 42.0 and
// 4.2e1 are equal. Fractions and integers beyond maxSafeInteger are unequal to every number.
func equalIntegers(a, b string) bool {
	m, ok := parseInteger(a)
	if !ok {
		return false
	}
	n, ok := parseInteger(b)
	return ok && m == n
}

// parseInteger parses a JSON number that is a safe integer, in any notation.
func parseInteger(s string) (n int64, ok bool) {
	if len(s) > maxNumber || jsonscan.Kind([]byte(s)) != '0' || jsonscan.Valid([]byte(s), jsonscan.Limits{}) != nil {
		return 0, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(s[i+1:]); err != nil || exponent > maxNumber || exponent < -maxNumber {
			return 0, false
		}
	}
	rational, ok := new(big.Rat).SetString(s)
	if !ok || !rational.IsInt() || rational.Num().CmpAbs(big.NewInt(maxSafeInteger)) > 0 {
		return 0, false
	}
	return rational.Num().Int64(), true
}
