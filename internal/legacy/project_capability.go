package legacy

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// tasksExtension is the only extension that sessions never use: their revisions define tasks of
// their own, which are not compatible.
const tasksExtension = "io.modelcontextprotocol/tasks"

// capabilitiesShape is the server's capabilities. Unknown capabilities pass, since the set of
// capabilities is open.
var capabilitiesShape = shape{fields: []field{
	{key: "completions", needs: wire.CompletionsCapability},
	{key: "tasks", needs: wire.Tasks},
	{key: "extensions", omitEmpty: true, shape: &shape{fields: []field{{key: tasksExtension, needs: modern}}}},
}}

// projectCapabilities turns the capabilities of a discover result into the capabilities of an
// initialize result of rev.
func projectCapabilities(rev wire.Revision, capabilities json.RawMessage) json.RawMessage {
	if jsonscan.Kind(capabilities) != '{' {
		return json.RawMessage("{}")
	}
	return projections.get(rev).capabilities.apply(capabilities)
}

// clientCapabilities turns the capabilities that a client of rev sent with initialize into the
// capabilities of the modern envelope. A capability that is not an object, such as null, counts as
// not declared.
func clientCapabilities(rev wire.Revision, declared json.RawMessage) json.RawMessage {
	if jsonscan.Kind(declared) != '{' {
		return json.RawMessage("{}")
	}
	dst := append(make([]byte, 0, len(declared)), '{')
	for key, value := range jsonscan.Members(declared) {
		if jsonscan.Kind(value) != '{' {
			continue
		}
		before := len(dst)
		dst = appendMember(dst, key, nil)
		if dst = appendCapability(dst, rev, string(key), value); dst[len(dst)-1] == ':' {
			dst = dst[:before]
			continue
		}
		dst = append(dst, ',')
	}
	return closeWith(dst, '}')
}

// appendCapability appends the modern form of a client capability, or leaves dst unchanged.
func appendCapability(dst []byte, rev wire.Revision, name string, value []byte) []byte {
	switch name {
	case "roots":
		return append(dst, `{}`...) // listChanged concerns the session only
	case "sampling":
		if !rev.Has(wire.SamplingTools) {
			return append(dst, `{}`...)
		}
	case "elicitation":
		if !rev.Has(wire.Elicitation) {
			return dst
		}
		if !rev.Has(wire.ElicitationURL) {
			return append(dst, `{}`...) // forms only
		}
	case "extensions", "experimental":
	case "tasks":
		return dst
	default:
		return append(dst, value...)
	}
	return append(dst, onlyObjects(value, tasksExtension)...)
}
