package legacy

import (
	"encoding/json"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// sessionCapabilities turns a client's capabilities into those that it declares with initialize of rev. What the revision
// does not have is left out. Extensions stay, all but the one that sessions never have: a client with that one takes questions
// as tasks where the revision has tasks of its own.
//
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

// sessionElicitation returns the capability to ask the user, or nil if the revision knows none of the ways.
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

// asksForm reports whether an elicitation capability means forms: it says so, or says nothing.
func asksForm(elicitation []byte) bool {
	return hasCapability(elicitation, "form") || !hasCapability(elicitation, "url")
}

// hasCapability reports whether there is an object at a path into capabilities.
func hasCapability(capabilities []byte, path ...string) bool {
	for _, key := range path {
		if jsonscan.Kind(capabilities) != '{' {
			return false
		}
		capabilities, _ = jsonscan.Get(capabilities, key)
	}
	return jsonscan.Kind(capabilities) == '{'
}

// onlyObjects returns the members of obj that are objects, but for one.
func onlyObjects(obj []byte, but string) []byte {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(obj) {
		if jsonscan.Kind(value) == '{' && string(key) != but {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// serverCapabilities turns the capabilities of an initialize result of rev into those of a discover result. What is not an
// object counts as not declared.
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
	// The first revision has completions without a capability, for what has arguments to complete.
	if !rev.Has(wire.CompletionsCapability) && !hasCapability(declared, "completions") &&
		(hasCapability(declared, "prompts") || hasCapability(declared, "resources")) {
		dst = append(dst, `"completions":{},`...)
	}
	return closeWith(dst, '}')
}

// withoutOddFlags leaves out the flags of a capability that are neither true nor false.
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

// capabilityMethods are the methods that a server has if it declares a capability, or one within another.
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

// refuses says why a request cannot be sent: the revision has no such method, or the server did not declare what it
// needs. Methods that no revision knows belong to extensions: they are the server's to judge.
//
// Spec: basic/lifecycle#operation; LIFE-25 of the oldest revision: completion needs no capability.
func (c *Client) checkMethod(method string) *jsonrpc.Error {
	if !sends(c.rev, method) {
		return methodNotFound("protocol revision " + c.rev.String() + ", which this server speaks, has no " + method)
	}
	if needed, lacks := c.lacks[method]; lacks {
		return methodNotFound("this server does not offer " + needed + ", which " + method + " needs")
	}
	return nil
}

// lacking returns the methods that a server does not have by its own declaration, with what it would declare if it had them.
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

// sends reports whether clients of rev may send the method as a request. What the modern era has given up, or has in
// another way, is not sent, but for what only a session has a use for.
func sends(rev wire.Revision, method string) bool {
	switch method {
	case wire.MethodPing, wire.MethodLoggingSetLevel, wire.MethodResourcesSubscribe, wire.MethodResourcesUnsubscribe:
		return true
	}
	if m, ok := rev.Method(method); ok {
		_, inCore := wire.Latest().Method(method)
		return inCore && !m.Notification && m.Direction == wire.ClientToServer || isTaskMethod(method)
	}
	return !inAnyRevision(method)
}

func methodNotFound(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: message}
}
