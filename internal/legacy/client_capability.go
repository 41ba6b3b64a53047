package legacy

import (
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// sessionCapabilities turns a client's capabilities into the capabilities that it declares with
// initialize of rev. It drops capabilities that the revision lacks. Extensions stay, except tasks:
// a client with that extension supports task-augmented requests where the revision defines tasks.
// Spec: basic/lifecycle#capability-negotiation
func sessionCapabilities(rev wire.Revision, capabilities json.RawMessage) json.RawMessage {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(capabilities) {
		if jsonscan.Kind(value) != '{' {
			continue
		}
		switch string(key) {
		case "roots":
			value = []byte(`{"listChanged":true}`)
		case "sampling":
			if !rev.Has(wire.SamplingTools) {
				value = emptyResult
			}
		case "elicitation":
			if value = sessionElicitation(rev, value); value == nil {
				continue
			}
		case "extensions":
			if value = onlyObjects(value, tasksExtension); len(value) == len("{}") {
				continue
			}
		case "tasks":
			continue
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	declared := closeWith(dst, '}')
	if hasCapability(capabilities, "extensions", tasksExtension) {
		if value := taskCapability(rev, declared); value != nil {
			dst = declared[:len(declared)-len("}")]
			declared = append(appendMember(append(dst, ','), []byte("tasks"), value), '}')
		}
	}
	return declared
}

// sessionElicitation returns the elicitation capability, or nil if the revision defines none of its
// modes.
func sessionElicitation(rev wire.Revision, value []byte) []byte {
	switch {
	case !rev.Has(wire.Elicitation):
		return nil
	case rev.Has(wire.ElicitationURL):
		return value
	case asksForm(value):
		return emptyResult
	}
	return nil
}

// asksForm reports whether an elicitation capability includes form mode, which is the default.
func asksForm(elicitation []byte) bool {
	return hasCapability(elicitation, "form") || !hasCapability(elicitation, "url")
}

// hasCapability reports whether capabilities contain an object at a path.
func hasCapability(capabilities []byte, path ...string) bool {
	for _, key := range path {
		if jsonscan.Kind(capabilities) != '{' {
			return false
		}
		capabilities, _ = jsonscan.Get(capabilities, key)
	}
	return jsonscan.Kind(capabilities) == '{'
}

// onlyObjects returns the members of obj that are objects, except one.
func onlyObjects(obj []byte, but string) []byte {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(obj) {
		if jsonscan.Kind(value) == '{' && string(key) != but {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// serverCapabilities turns the capabilities of an initialize result of rev into the capabilities of
// a discover result. A capability that is not an object counts as not declared.
func serverCapabilities(rev wire.Revision, declared json.RawMessage) json.RawMessage {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(declared) {
		if jsonscan.Kind(value) != '{' {
			continue
		}
		switch string(key) {
		case "tools", "prompts", "resources":
			value = withoutOddFlags(value)
		case "extensions":
			value = onlyObjects(value, tasksExtension)
		case "tasks":
			if !rev.Has(wire.Tasks) {
				continue
			}
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	// The first revision offers completion without a capability, for prompts and resources.
	if !rev.Has(wire.CompletionsCapability) && !hasCapability(declared, "completions") &&
		(hasCapability(declared, "prompts") || hasCapability(declared, "resources")) {
		dst = append(dst, `"completions":{},`...)
	}
	return closeWith(dst, '}')
}

// withoutOddFlags drops flags of a capability that are not booleans.
func withoutOddFlags(capability []byte) []byte {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(capability) {
		kind := jsonscan.Kind(value)
		flag := string(key) == "listChanged" || string(key) == "subscribe"
		if !flag || kind == 't' || kind == 'f' {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// capabilityMethods are the methods that need a capability, or a part of one.
var capabilityMethods = [...]struct {
	capability string
	methods    []string
}{
	{"tools", []string{wire.MethodToolsList, wire.MethodToolsCall}},
	{"prompts", []string{wire.MethodPromptsList, wire.MethodPromptsGet}},
	{"resources", []string{
		wire.MethodResourcesList, wire.MethodResourcesTemplatesList, wire.MethodResourcesRead,
		wire.MethodResourcesSubscribe, wire.MethodResourcesUnsubscribe,
	}},
	{"completions", []string{wire.MethodCompletionComplete}},
	{"logging", []string{wire.MethodLoggingSetLevel}},
	{"tasks", []string{wire.MethodTasksGet, wire.MethodTasksResult}},
	{"tasks.list", []string{wire.MethodTasksList}},
	{"tasks.cancel", []string{wire.MethodTasksCancel}},
}

// checkMethod returns an error if the revision lacks the method or the server did not declare the
// capability that it needs. Methods that no revision defines belong to extensions, and are left to
// the server. Spec: basic/lifecycle#operation; LIFE-25 of the oldest revision: completion needs no
// capability.
func (c *Client) checkMethod(method string) *jsonrpc.Error {
	if method != wire.MethodPing && !serves(c.rev, method) {
		return methodNotFound("protocol revision " + c.rev.String() + " of this session has no " + method)
	}
	if needed, lacks := c.lacks[method]; lacks {
		return methodNotFound("this server does not offer " + needed + ", which " + method + " needs")
	}
	return nil
}

// lacking returns the methods that the server does not offer, with the capability that each of them
// needs.
func lacking(rev wire.Revision, capabilities []byte) map[string]string {
	lacks := make(map[string]string)
	for _, c := range capabilityMethods {
		if c.capability == "completions" && !rev.Has(wire.CompletionsCapability) {
			continue
		}
		if hasCapability(capabilities, strings.Split(c.capability, ".")...) {
			continue
		}
		for _, method := range c.methods {
			lacks[method] = c.capability
		}
	}
	return lacks
}

func methodNotFound(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: message}
}
