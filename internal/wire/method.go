package wire

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Direction says which side may send a method.
type Direction uint8

const (
	// ClientToServer marks messages that only clients send.
	ClientToServer Direction = iota + 1
	// ServerToClient marks messages that only servers send.
	ServerToClient
	// EitherWay marks messages that both sides send.
	EitherWay
	// InsideResult marks requests that are part of an `input_required` result. They are never sent
	// as messages.
	InsideResult
)

// String returns the direction as an arrow between client and server, for documents and logs.
func (d Direction) String() string {
	switch d {
	case ClientToServer:
		return "client → server"
	case ServerToClient:
		return "server → client"
	case EitherWay:
		return "either way"
	case InsideResult:
		return "in a result"
	}
	return ""
}

// A Method describes a request or notification in one revision.
type Method struct {
	// Name is the method as sent.
	Name string
	// Direction says which side may send it.
	Direction Direction
	// Notification is true for notifications.
	Notification bool
	// NameParam is the member of params that names the tool, prompt or resource, "name" or "uri";
	// "" if there is none.
	NameParam string
	// MayAskInput is true if the result may be `input_required`.
	MayAskInput bool
	// Cacheable is true if the result has cache hints.
	Cacheable bool
}

// The methods of all revisions. [Revision.Method] reports which revisions have them.
const (
	MethodInitialize = "initialize"
	MethodPing       = "ping"
	MethodDiscover   = "server/discover"

	MethodToolsList              = "tools/list"
	MethodToolsCall              = "tools/call"
	MethodPromptsList            = "prompts/list"
	MethodPromptsGet             = "prompts/get"
	MethodResourcesList          = "resources/list"
	MethodResourcesTemplatesList = "resources/templates/list"
	MethodResourcesRead          = "resources/read"
	MethodResourcesSubscribe     = "resources/subscribe"
	MethodResourcesUnsubscribe   = "resources/unsubscribe"
	MethodCompletionComplete     = "completion/complete"
	MethodLoggingSetLevel        = "logging/setLevel"
	MethodSubscriptionsListen    = "subscriptions/listen"

	MethodRootsList             = "roots/list"
	MethodSamplingCreateMessage = "sampling/createMessage"
	MethodElicitationCreate     = "elicitation/create"

	MethodTasksGet    = "tasks/get"
	MethodTasksResult = "tasks/result"
	MethodTasksList   = "tasks/list"
	MethodTasksCancel = "tasks/cancel"

	NotificationInitialized               = "notifications/initialized"
	NotificationCancelled                 = "notifications/cancelled"
	NotificationProgress                  = "notifications/progress"
	NotificationMessage                   = "notifications/message"
	NotificationToolsListChanged          = "notifications/tools/list_changed"
	NotificationPromptsListChanged        = "notifications/prompts/list_changed"
	NotificationResourcesListChanged      = "notifications/resources/list_changed"
	NotificationResourcesUpdated          = "notifications/resources/updated"
	NotificationRootsListChanged          = "notifications/roots/list_changed"
	NotificationElicitationComplete       = "notifications/elicitation/complete"
	NotificationTasksStatus               = "notifications/tasks/status"
	NotificationSubscriptionsAcknowledged = "notifications/subscriptions/acknowledged"
)

// Error codes that the protocol adds to those of JSON-RPC. [Revision.HasCode] reports which
// revisions have them.
const (
	// CodeHeaderMismatch: the HTTP headers of a request contradict its body, or a required header
	// is missing.
	CodeHeaderMismatch = -32020
	// CodeMissingCapability: the request needs a capability that the client did not declare in it.
	// The error's data names the capabilities under `requiredCapabilities`.
	CodeMissingCapability = -32021
	// CodeUnsupportedVersion: the server does not support the request's revision. The error's data
	// lists the supported ones under `supported`.
	CodeUnsupportedVersion = -32022
	// CodeResourceNotFoundLegacy: there is no such resource, in the legacy era. The modern era has
	// invalid params instead; clients understand both.
	CodeResourceNotFoundLegacy = -32002
	// CodeURLElicitationRequired: the request requires URL elicitations that the error's data
	// lists.
	CodeURLElicitationRequired = -32042
	// CodeUserRejected: the user rejected a sampling request.
	CodeUserRejected = -1
)

// UnsupportedVersion returns the error for a request whose envelope names a revision that is
// unknown or has no envelopes. Its data contains the requested version and the supported revisions,
// newest first. If the requested revision is supported with a session, the list has only the
// revisions with envelopes.
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
