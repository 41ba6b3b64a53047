package wire

// A Feature is a named difference between revisions. The first sentence of each constant's comment
// is also its line in docs/support.md. No revision defines the zero Feature.
type Feature uint8

const (
	// Base protocol

	// Handshake: initialize opens a session, with a revision, a set of capabilities and a
	// identity on each side.
	Handshake Feature = iota + 1
	// RequestEnvelope: every request names its revision and the client's capabilities in `_meta`,
	// and is independent of other requests.
	RequestEnvelope
	// ServerRequests: the server sends JSON-RPC requests, and the client sends JSON-RPC responses.
	ServerRequests
	// InputRequired: a server asks the client for input in a result of type `input_required`, and
	// the client retries the request with the responses.
	InputRequired
	// Batches: several messages are sent as a single JSON array.
	Batches
	// IDReuse: a request id may be reused after the response; elsewhere an id is unique within its
	// session.
	IDReuse
	// ErrorWithoutID: an error response lacks `id` if the request's id could not be read;
	// elsewhere the schema requires it.
	ErrorWithoutID
	// ResultType: every result names its type in `resultType`.
	ResultType
	// CacheHints: list, read and discover results contain `ttlMs` and `cacheScope`, which say how
	// long and for whom they are valid.
	CacheHints
	// Subscriptions: change notifications are sent on a `subscriptions/listen` stream that asked
	// for them; elsewhere they are pushed.
	Subscriptions
	// DataMeta: data types such as tools, resources and content blocks contain a `_meta`.
	DataMeta
	// MetaKeyGrammar: `_meta` keys follow a grammar with reserved prefixes.
	MetaKeyGrammar
	// MetaSecondLabel: a `_meta` prefix is reserved by its second label only.
	MetaSecondLabel
	// TraceContext: `_meta` reserves `traceparent`, `tracestate` and `baggage` for W3C trace
	// context.
	TraceContext
	// Titles: named things carry a `title` for display beside their `name`.
	Titles
	// Icons: tools, resources, templates, prompts and implementations carry `icons`.
	Icons
	// ImplementationDetails: an implementation describes itself with `description` and
	// `websiteUrl`.
	ImplementationDetails
	// Tasks: long-running requests are tasks of the core protocol; experimental.
	Tasks
	// Extensions: capabilities name the protocol extensions in use under `extensions`.
	Extensions
	// ProgressMessage: progress notifications carry a `message`.
	ProgressMessage

	// Content

	// AudioContent: content blocks of type `audio`.
	AudioContent
	// ResourceLinks: content blocks of type `resource_link`.
	ResourceLinks
	// LastModified: annotations carry a `lastModified` time.
	LastModified

	// Tools, resources, prompts, completion, logging

	// ToolAnnotations: tools describe their behaviour in `annotations`.
	ToolAnnotations
	// ToolArgumentErrors: arguments that do not match a tool's schema result in a tool result with
	// `isError`; elsewhere in a protocol error.
	ToolArgumentErrors
	// ToolNameFormat: tool names are 1 to 128 letters, digits, underscores, hyphens and dots.
	ToolNameFormat
	// ToolExecution: tools contain `execution`, which says whether they can run as a task.
	ToolExecution
	// StructuredContent: tools contain an `outputSchema`, and tool results `structuredContent`.
	StructuredContent
	// NonObjectStructuredContent: `structuredContent` is any JSON value; elsewhere an object.
	NonObjectStructuredContent
	// SchemaDialect: schemas are JSON Schema 2020-12 unless `$schema` names another dialect;
	// elsewhere undefined.
	SchemaDialect
	// OpenSchemas: tool schemas use any keyword of JSON Schema, and an output schema describes any
	// value.
	OpenSchemas
	// ParameterHeaders: `x-mcp-header` in a tool's schema copies an argument into an HTTP header.
	ParameterHeaders
	// CompletionsCapability: completion requires the capability `completions`; elsewhere it
	// requires none.
	CompletionsCapability
	// CompletionContext: completion requests carry the arguments chosen so far.
	CompletionContext
	// Logging: servers send log messages to the client.
	Logging

	// Roots and sampling

	// Roots: servers ask for the client's root directories.
	Roots
	// RootsListChanged: clients declare `roots.listChanged` and notify of changed roots.
	RootsListChanged
	// Sampling: servers ask the client for a model's completion.
	Sampling
	// SamplingTools: sampling requests carry tools, and messages tool uses and results.
	SamplingTools
	// SamplingContentArrays: the content of a sampling message is a block or several; elsewhere
	// exactly one block.
	SamplingContentArrays
	// SamplingContext: the `includeContext` values `thisServer` and `allServers` of sampling
	// requests.
	SamplingContext
	// SamplingContextCapability: clients declare `sampling.context` if they support
	// `includeContext`.
	SamplingContextCapability

	// Elicitation

	// Elicitation: servers ask the user for structured input.
	Elicitation
	// ElicitationURL: elicitation contains a `mode`; the mode `url` sends the user to a URL.
	ElicitationURL
	// ElicitationIDs: URL elicitations contain an `elicitationId`, and a notification reports their
	// completion.
	ElicitationIDs
	// ElicitationEnumTitled: enum choices carry titles, as `oneOf` of `const` and `title`.
	ElicitationEnumTitled
	// ElicitationEnumNames: enum choices carry titles, as `enumNames` beside `enum`.
	ElicitationEnumNames
	// ElicitationMultiSelect: a field lets the user choose several values, and the result contains
	// arrays of strings.
	ElicitationMultiSelect
	// ElicitationDefaults: fields of every type allow a `default`; elsewhere only booleans.
	ElicitationDefaults

	// Transports

	// HTTPSSE: HTTP with two endpoints, one of which is an event stream that names the other.
	HTTPSSE
	// StreamableHTTP: HTTP with a single endpoint, whose responses are JSON or an event stream.
	StreamableHTTP
	// SessionHTTP: an HTTP session with an id header, a GET stream, and DELETE to end it.
	SessionHTTP
	// SSEResumption: event ids, and resumption of an interrupted stream with `Last-Event-ID`.
	SSEResumption
	// SSEPriming: a stream begins with an empty event with an id, and may be closed early and
	// polled.
	SSEPriming
	// DisconnectCancels: closing the response stream cancels the request; elsewhere it does not.
	DisconnectCancels
	// ProtocolVersionHeader: HTTP requests name their revision in a header.
	ProtocolVersionHeader
	// MirroredHeaders: HTTP requests repeat method, name and chosen arguments in headers, which
	// must match the body.
	MirroredHeaders
	// ErrorStatus: HTTP status codes follow the JSON-RPC error: 404 for an unknown method, 400 for
	// an invalid envelope.
	ErrorStatus
	// OriginForbidden: an unknown `Origin` is rejected with status 403; elsewhere the status is
	// undefined.
	OriginForbidden

	// Authorization

	// Authorization: HTTP transports may use the protocol's OAuth framework.
	Authorization
	// AuthorizationAtServer: the server's own origin is the authorization server, with conventional
	// endpoints.
	AuthorizationAtServer
	// ProtectedResourceMetadata: servers name their authorization servers in protected resource
	// metadata.
	ProtectedResourceMetadata
	// ResourceIndicators: clients name the server as the `resource` of a token, and servers check
	// it.
	ResourceIndicators
	// WellKnownResourceMetadata: resource metadata is at its well-known path if a challenge does
	// not name it.
	WellKnownResourceMetadata
	// OIDCDiscovery: authorization servers may be described by OpenID Connect discovery.
	OIDCDiscovery
	// PKCEAdvertised: clients reject an authorization server that does not advertise PKCE.
	PKCEAdvertised
	// ScopeChallenges: challenges name the required scopes, and clients request them.
	ScopeChallenges
	// DynamicRegistration: clients register themselves with the authorization server.
	DynamicRegistration
	// ApplicationType: a dynamic registration contains an `application_type`.
	ApplicationType
	// ClientIDMetadata: a client id is the URL of a metadata document of the client.
	ClientIDMetadata
	// AuthorizationIssuer: authorization responses name their issuer in `iss`, and clients check
	// it.
	AuthorizationIssuer
	// CredentialsByIssuer: clients keep credentials separate by issuer.
	CredentialsByIssuer

	featureCount // keep last
)

// A featureSet holds a bit per Feature.
type featureSet [2]uint64

func (s featureSet) has(f Feature) bool {
	return f < featureCount && s[f/64]&(1<<(f%64)) != 0
}

func (s featureSet) with(list []Feature) featureSet {
	for _, f := range list {
		s[f/64] |= 1 << (f % 64)
	}
	return s
}

func (s featureSet) without(list []Feature) featureSet {
	for _, f := range list {
		s[f/64] &^= 1 << (f % 64)
	}
	return s
}
