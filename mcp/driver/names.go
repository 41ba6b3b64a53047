package driver

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// The revisions of the protocol, the oldest first. Later revisions compare greater as strings.
const (
	November2024 = wire.VersionNovember2024
	March2025    = wire.VersionMarch2025
	June2025     = wire.VersionJune2025
	November2025 = wire.VersionNovember2025
	July2026     = wire.VersionJuly2026
)

// Revisions returns the known revisions, the oldest first.
func Revisions() []string {
	var all []string
	for _, r := range wire.Revisions() {
		all = append(all, r.String())
	}
	return all
}

// HasSessions reports whether a revision is known and opens a session with initialize, as all
// revisions before [July2026] do. In later revisions, every request is independent.
func HasSessions(revision string) bool {
	r, known := wire.ParseRevision(revision)
	return known && !r.Modern()
}

// Cacheable reports whether results of a method contain cache hints in the latest revision.
func Cacheable(method string) bool {
	m, _ := wire.Latest().Method(method)
	return m.Cacheable
}

// LogSeverity returns the rank of a log level, 0 for debug to 7 for emergency, and whether the level
// exists.
//
// Spec: server/utilities/logging#log-levels
func LogSeverity(level string) (rank int, ok bool) { return wire.LogSeverity(level) }

// The methods of all revisions. A revision may lack some of them.
const (
	MethodInitialize             = wire.MethodInitialize
	MethodPing                   = wire.MethodPing
	MethodDiscover               = wire.MethodDiscover
	MethodToolsList              = wire.MethodToolsList
	MethodToolsCall              = wire.MethodToolsCall
	MethodPromptsList            = wire.MethodPromptsList
	MethodPromptsGet             = wire.MethodPromptsGet
	MethodResourcesList          = wire.MethodResourcesList
	MethodResourcesTemplatesList = wire.MethodResourcesTemplatesList
	MethodResourcesRead          = wire.MethodResourcesRead
	MethodResourcesSubscribe     = wire.MethodResourcesSubscribe
	MethodResourcesUnsubscribe   = wire.MethodResourcesUnsubscribe
	MethodCompletionComplete     = wire.MethodCompletionComplete
	MethodLoggingSetLevel        = wire.MethodLoggingSetLevel
	MethodSubscriptionsListen    = wire.MethodSubscriptionsListen
	MethodRootsList              = wire.MethodRootsList
	MethodSamplingCreateMessage  = wire.MethodSamplingCreateMessage
	MethodElicitationCreate      = wire.MethodElicitationCreate
	MethodTasksGet               = wire.MethodTasksGet
	MethodTasksResult            = wire.MethodTasksResult
	MethodTasksList              = wire.MethodTasksList
	MethodTasksCancel            = wire.MethodTasksCancel
)

// The notifications of all revisions. A revision may lack some of them.
const (
	NotificationInitialized               = wire.NotificationInitialized
	NotificationCancelled                 = wire.NotificationCancelled
	NotificationProgress                  = wire.NotificationProgress
	NotificationMessage                   = wire.NotificationMessage
	NotificationToolsListChanged          = wire.NotificationToolsListChanged
	NotificationPromptsListChanged        = wire.NotificationPromptsListChanged
	NotificationResourcesListChanged      = wire.NotificationResourcesListChanged
	NotificationResourcesUpdated          = wire.NotificationResourcesUpdated
	NotificationRootsListChanged          = wire.NotificationRootsListChanged
	NotificationElicitationComplete       = wire.NotificationElicitationComplete
	NotificationTasksStatus               = wire.NotificationTasksStatus
	NotificationSubscriptionsAcknowledged = wire.NotificationSubscriptionsAcknowledged
)

// Error codes that the SDK sends and handles itself. Package mcp contains the codes of handlers.
//
// Spec: basic (2026-07-28), Error Codes.
const (
	// CodeHeaderMismatch reports that an HTTP header contradicts the body.
	CodeHeaderMismatch = wire.CodeHeaderMismatch
	// CodeMissingRequiredClientCapability reports that the client did not declare a capability, which
	// the member requiredCapabilities of the data names. Revisions before 2026-07-28 use
	// mcp.CodeInvalidRequest, with the same data.
	CodeMissingRequiredClientCapability = wire.CodeMissingCapability
	// CodeUnsupportedProtocolVersion reports that the server does not support the revision.
	CodeUnsupportedProtocolVersion = wire.CodeUnsupportedVersion
	// CodeResourceNotFound reports, in revisions with sessions, that the server lacks a resource.
	CodeResourceNotFound = wire.CodeResourceNotFoundLegacy
	// CodeUserRejected reports, in revisions with sessions, that the user rejected a sampling request.
	CodeUserRejected = wire.CodeUserRejected
)

// Keys of _meta.
const (
	// MetaServerInfo identifies the name and version of the server, in results.
	MetaServerInfo = wire.MetaServerInfo
	// MetaSubscriptionID identifies the listen request that a notification belongs to.
	MetaSubscriptionID = wire.MetaSubscriptionID
)

// The result types of the protocol, which mcp.Result.ResultType returns.
//
// Spec: basic (2026-07-28), Responses.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
)

// MissingClientCapability returns the error for a request that needs a capability which its client did
// not declare. The required capabilities have the form of the client's declaration, such as
// {"sampling":{}}.
//
// Spec: basic (2026-07-28), Missing Required Client Capability.
func MissingClientCapability(required json.RawMessage) *jsonrpc.Error {
	data := append(append([]byte(`{"requiredCapabilities":`), required...), '}')
	message := "missing required client capability " + string(required)
	return &jsonrpc.Error{Code: CodeMissingRequiredClientCapability, Message: message, Data: data}
}
