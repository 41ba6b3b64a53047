package otelmcp

import (
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// The names follow the semantic conventions for the Model Context Protocol, status Development, of
// the repository github.com/open-telemetry/semantic-conventions-genai: page docs/gen-ai/mcp.md at
// commit 0393513c908b, read in November 2026. The conventions of the repository
// semantic-conventions, up to v1.41, contain the same names, and deprecate them there. This file
// contains all names that this package uses.

// Attributes of the conventions.
const (
	attrMethod          = "mcp.method.name"
	attrRevision        = "mcp.protocol.version"
	attrSession         = "mcp.session.id"
	attrResource        = "mcp.resource.uri"
	attrRequestID       = "jsonrpc.request.id"
	attrStatusCode      = "rpc.response.status_code"
	attrErrorType       = "error.type"
	attrOperation       = "gen_ai.operation.name"
	attrTool            = "gen_ai.tool.name"
	attrPrompt          = "gen_ai.prompt.name"
	attrArguments       = "gen_ai.tool.call.arguments"
	attrNetwork         = "network.transport"
	attrProtocol        = "network.protocol.name"
	attrProtocolVersion = "network.protocol.version"
	attrClientAddress   = "client.address"
	attrClientPort      = "client.port"
	attrServerAddress   = "server.address"
	attrServerPort      = "server.port"
)

// Attributes that the conventions lack.
const (
	attrRole          = "patchbay.role"   // of requests in progress: server or client
	attrServer        = "patchbay.server" // of a host, by its name in the configuration
	attrStatus        = "http.response.status_code"
	attrReason        = "patchbay.reason"         // of a refusal
	attrKind          = "patchbay.kind"           // of a stream, a feature, or the subject of a policy decision
	attrPhase         = "patchbay.phase"          // of tasks, and of requests of a host
	attrState         = "patchbay.state"          // of servers of a host, and of their breakers
	attrCode          = "patchbay.code"           // of requests without a valid response of their server
	attrLimit         = "patchbay.limit"          // the setting that refused a request
	attrEffect        = "patchbay.effect"         // of a decision
	attrOutcome       = "patchbay.outcome"        // of an approval
	attrInputRequired = "patchbay.input_required" // true if the result asks for input
	attrDetached      = "patchbay.task.run"       // true for a run of a task
)

// Values of attributes.
const (
	other          = "_OTHER"
	executeTool    = "execute_tool"
	errorTool      = "tool_error"
	errorTimeout   = "timeout"
	errorCancelled = "cancelled"
	errorClosed    = "closed"
	errorTransport = "transport_error"
	errorHTTP      = "http_" // and the status
	roleServer     = "server"
	roleClient     = "client"
)

// Metrics of the conventions, and their buckets in seconds.
const (
	metricServerRequest = "mcp.server.operation.duration"
	metricClientRequest = "mcp.client.operation.duration"
	metricServerSession = "mcp.server.session.duration"
	metricClientSession = "mcp.client.session.duration"
)

var buckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// Metrics that the conventions lack.
const (
	metricTaskRun        = "patchbay.task.run.duration"
	metricActive         = "patchbay.requests.active"
	metricRefusals       = "patchbay.refusals"
	metricSessions       = "patchbay.sessions"
	metricStreams        = "patchbay.streams"
	metricFeatures       = "patchbay.features"
	metricSubscriptions  = "patchbay.subscriptions"
	metricTasks          = "patchbay.tasks"
	metricServers        = "patchbay.host.servers"
	metricInstances      = "patchbay.host.instances"
	metricHostRequests   = "patchbay.host.requests"
	metricBreakers       = "patchbay.host.breakers"
	metricRestarts       = "patchbay.host.restarts"
	metricHostErrors     = "patchbay.host.errors"
	metricLimited        = "patchbay.host.limited"
	metricQuarantined    = "patchbay.host.quarantined"
	metricDecisions      = "patchbay.host.decisions"
	metricApprovals      = "patchbay.host.approvals"
	metricSpilled        = "patchbay.host.spilled.results"
	metricSpilledSize    = "patchbay.host.spilled.size"
	metricRecordsWaiting = "patchbay.host.records.waiting"
	metricRecordsLost    = "patchbay.host.records.lost"
)

// methods holds the methods that the revisions of the protocol and the tasks extension define.
// Another method becomes a label once a request with it returned a result.
var methods = func() map[string]bool {
	known := map[string]bool{}
	for _, name := range []string{
		methodInitialize, "ping", methodDiscover, "tools/list", methodCall, "prompts/list", methodPrompt,
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe",
		"resources/unsubscribe", "completion/complete", "logging/setLevel", "subscriptions/listen",
		"roots/list", "sampling/createMessage", "elicitation/create",
		"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
	} {
		known[name] = true
	}
	return known
}()

const (
	methodCall       = "tools/call"
	methodPrompt     = "prompts/get"
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
)

// questions are the methods of servers that clients answer.
var questions = map[string]bool{"roots/list": true, "sampling/createMessage": true, "elicitation/create": true}

// errorCodes are the error codes that the protocol defines. Others are labels up to a limit.
var errorCodes = map[int]string{
	-32700: "-32700", mcp.CodeInvalidRequest: "-32600", mcp.CodeMethodNotFound: "-32601",
	mcp.CodeInvalidParams: "-32602", mcp.CodeInternalError: "-32603",
	driver.CodeHeaderMismatch: "-32020", driver.CodeMissingRequiredClientCapability: "-32021",
	driver.CodeUnsupportedProtocolVersion: "-32022", mcp.CodeBusy: "429",
	-32002: "-32002", -32042: "-32042",
}
