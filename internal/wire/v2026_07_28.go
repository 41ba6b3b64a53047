package wire

// The protocol becomes stateless. There is no handshake and no session: each request carries its
// envelope. Servers send no requests: they ask for input in a result. They push no changes: changes
// are sent on a stream that the client opens. Spec:
// https://modelcontextprotocol.io/specification/2026-07-28/changelog
var july2026 = delta{
	version: VersionJuly2026,
	adds: []Feature{
		RequestEnvelope, IDReuse,
		ResultType, InputRequired, CacheHints,
		Subscriptions,
		TraceContext,
		Extensions,
		NonObjectStructuredContent, OpenSchemas, ParameterHeaders,
		DisconnectCancels, MirroredHeaders, ErrorStatus,
		ApplicationType, AuthorizationIssuer, CredentialsByIssuer,
	},
	removes: []Feature{
		Handshake, ServerRequests,
		Tasks, ToolExecution, // an extension now
		RootsListChanged,
		ElicitationIDs,
		SessionHTTP, SSEResumption, SSEPriming,
	},
	deprecates: []Feature{Roots, Sampling, SamplingTools, Logging, DynamicRegistration},

	methods: []Method{
		{Name: MethodDiscover, Direction: ClientToServer, Cacheable: true},
		{Name: MethodSubscriptionsListen, Direction: ClientToServer},
		{Name: NotificationSubscriptionsAcknowledged, Direction: ServerToClient, Notification: true},

		{Name: MethodToolsList, Direction: ClientToServer, Cacheable: true},
		{Name: MethodToolsCall, Direction: ClientToServer, NameParam: "name", MayAskInput: true},
		{Name: MethodPromptsList, Direction: ClientToServer, Cacheable: true},
		{Name: MethodPromptsGet, Direction: ClientToServer, NameParam: "name", MayAskInput: true},
		{Name: MethodResourcesList, Direction: ClientToServer, Cacheable: true},
		{Name: MethodResourcesTemplatesList, Direction: ClientToServer, Cacheable: true},
		{Name: MethodResourcesRead, Direction: ClientToServer, NameParam: "uri", MayAskInput: true, Cacheable: true},

		{Name: NotificationProgress, Direction: ServerToClient, Notification: true},
		{Name: MethodRootsList, Direction: InsideResult},
		{Name: MethodSamplingCreateMessage, Direction: InsideResult},
		{Name: MethodElicitationCreate, Direction: InsideResult},
	},
	removesMethods: []string{
		MethodInitialize, NotificationInitialized, MethodPing,
		MethodLoggingSetLevel,
		MethodResourcesSubscribe, MethodResourcesUnsubscribe,
		NotificationRootsListChanged, NotificationElicitationComplete,
		MethodTasksGet, MethodTasksResult, MethodTasksList, MethodTasksCancel, NotificationTasksStatus,
	},

	codes:        []int{CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion},
	removesCodes: []int{CodeResourceNotFoundLegacy, CodeURLElicitationRequired, CodeUserRejected},

	meta: []string{
		MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaServerInfo, MetaLogLevel,
		MetaSubscriptionID,
		MetaTraceParent, MetaTraceState, MetaBaggage,
	},
	removesMeta: []string{MetaRelatedTask, MetaImmediateResponse},
}
