package wire

// Feature is a named difference between revisions. The first sentence of each constant's comment is also its line in
// docs/support.md. The zero Feature is none; no revision has it.
type Feature uint8

const (
	// Base protocol

	// Handshake: a session is opened by initialize, which fixes revision, capabilities and identities for all of it.
	Handshake Feature = iota + 1
	// RequestEnvelope: every request names its revision and the client's capabilities in `_meta`; no request depends
	// on another.
	RequestEnvelope
	// ServerRequests: the server sends JSON-RPC requests, and the client answers with JSON-RPC responses.
	ServerRequests
	// InputRequired: a server asks the client for input in a result of type `input_required`, and is asked again with
	// the answers.
	InputRequired
	// Batches: several messages travel as one JSON array.
	Batches
	// IDReuse: a request id may be used again once it was answered; elsewhere an id is used once per session.
	IDReuse
	// ErrorWithoutID: an error response has no `id` when the request's could not be read; elsewhere the schema
	// demands one.
	ErrorWithoutID
	// ResultType: every result says in `resultType` what kind of result it is.
	ResultType
	// CacheHints: list, read and discover results say with `ttlMs` and `cacheScope` how long and for whom they hold.
	CacheHints
	// Subscriptions: change notifications come on a `subscriptions/listen` stream that asked for them; elsewhere they
	// are pushed.
	Subscriptions
	// DataMeta: data types such as tools, resources and content blocks have a `_meta` of their own.
	DataMeta
	// MetaKeyGrammar: `_meta` keys have a grammar with reserved prefixes.
	MetaKeyGrammar
	// MetaSecondLabel: a `_meta` prefix is reserved by its second label alone.
	MetaSecondLabel
	// TraceContext: `_meta` reserves `traceparent`, `tracestate` and `baggage` for W3C trace context.
	TraceContext
	// Titles: named things have a `title` for display beside their `name`.
	Titles
	// Icons: tools, resources, templates, prompts and implementations have `icons`.
	Icons
	// ImplementationDetails: an implementation describes itself with `description` and `websiteUrl`.
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
	// ToolArgumentErrors: arguments that a tool's schema refuses give a tool result with `isError`; elsewhere a
	// protocol error.
	ToolArgumentErrors
	// ToolNameFormat: tool names are 1 to 128 letters, digits, underscores, hyphens and dots.
	ToolNameFormat
	// ToolExecution: tools say in `execution` whether they can run as a task.
	ToolExecution
	// StructuredContent: tools have an `outputSchema`, and tool results `structuredContent`.
	StructuredContent
	// NonObjectStructuredContent: `structuredContent` is any JSON value; elsewhere an object.
	NonObjectStructuredContent
	// SchemaDialect: schemas are of JSON Schema 2020-12 unless `$schema` names another dialect; elsewhere unstated.
	SchemaDialect
	// OpenSchemas: tool schemas use any keyword of JSON Schema, and an output schema describes any value.
	OpenSchemas
	// ParameterHeaders: `x-mcp-header` in a tool's schema copies an argument into an HTTP header.
	ParameterHeaders
	// CompletionsCapability: completion is declared as the capability `completions`; elsewhere it needs none.
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
	// SamplingContentArrays: the content of a sampling message is one block or several; elsewhere exactly one.
	SamplingContentArrays
	// SamplingContext: the `includeContext` values `thisServer` and `allServers` of sampling requests.
	SamplingContext
	// SamplingContextCapability: clients declare `sampling.context` when they honour `includeContext`.
	SamplingContextCapability

	// Elicitation

	// Elicitation: servers ask the user for structured input.
	Elicitation
	// ElicitationURL: elicitation has a `mode`, and sends the user to a URL in mode `url`.
	ElicitationURL
	// ElicitationIDs: URL elicitations have an `elicitationId`, and their completion is notified.
	ElicitationIDs
	// ElicitationEnumTitled: enum choices have titles, as `oneOf` of `const` and `title`.
	ElicitationEnumTitled
	// ElicitationEnumNames: enum choices have titles, as `enumNames` beside `enum`.
	ElicitationEnumNames
	// ElicitationMultiSelect: a field lets the user choose several values, and answers hold arrays of strings.
	ElicitationMultiSelect
	// ElicitationDefaults: fields of every type have a `default`; elsewhere only booleans.
	ElicitationDefaults

	// Transports

	// HTTPSSE: HTTP with two endpoints, one of them an event stream that names the other.
	HTTPSSE
	// StreamableHTTP: HTTP with one endpoint, answering with JSON or an event stream.
	StreamableHTTP
	// SessionHTTP: an HTTP session with an id header, a standing GET stream and an end by DELETE.
	SessionHTTP
	// SSEResumption: event ids, and resumption of a broken stream with `Last-Event-ID`.
	SSEResumption
	// SSEPriming: a stream opens with an empty event that has an id, and may be closed early and polled.
	SSEPriming
	// DisconnectCancels: a client that drops the response stream has cancelled its request; elsewhere it has not.
	DisconnectCancels
	// ProtocolVersionHeader: HTTP requests name their revision in a header.
	ProtocolVersionHeader
	// MirroredHeaders: HTTP requests repeat method, name and chosen arguments in headers, which have to agree with
	// the body.
	MirroredHeaders
	// ErrorStatus: HTTP status codes follow the JSON-RPC error: 404 for an unknown method, 400 for a bad envelope.
	ErrorStatus
	// OriginForbidden: a foreign `Origin` is refused with status 403; elsewhere the status is open.
	OriginForbidden

	// Authorization

	// Authorization: HTTP transports may use the protocol's OAuth framework.
	Authorization
	// AuthorizationAtServer: the server's own origin is the authorization server, with conventional endpoints.
	AuthorizationAtServer
	// ProtectedResourceMetadata: servers name their authorization servers in protected resource metadata.
	ProtectedResourceMetadata
	// ResourceIndicators: clients name the server as the `resource` that a token is for, and servers check it.
	ResourceIndicators
	// WellKnownResourceMetadata: resource metadata is found at its well-known path when a challenge does not name it.
	WellKnownResourceMetadata
	// OIDCDiscovery: authorization servers are described by OpenID Connect discovery too.
	OIDCDiscovery
	// PKCEAdvertised: clients refuse an authorization server that does not advertise PKCE.
	PKCEAdvertised
	// ScopeChallenges: challenges name the scopes that are wanted, and clients step up to them.
	ScopeChallenges
	// DynamicRegistration: clients register themselves with the authorization server.
	DynamicRegistration
	// ApplicationType: a dynamic registration names its `application_type`.
	ApplicationType
	// ClientIDMetadata: a client is identified by the URL of a document about itself.
	ClientIDMetadata
	// AuthorizationIssuer: authorization responses name their issuer in `iss`, and clients check it.
	AuthorizationIssuer
	// CredentialsByIssuer: clients keep credentials apart by the issuer that gave them.
	CredentialsByIssuer

	featureCount // keep last
)

// A featureSet holds one bit per Feature.
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
