package wire

// The first revision lists everything that later revisions change. Spec:
// https://modelcontextprotocol.io/specification/2024-11-05
var november2024 = delta{
	version: VersionNovember2024,
	adds: []Feature{
		Handshake, ServerRequests,
		Logging,
		Roots, RootsListChanged,
		Sampling, SamplingContext,
		HTTPSSE,
	},
	methods: []Method{
		{Name: MethodInitialize, Direction: ClientToServer},
		{Name: NotificationInitialized, Direction: ClientToServer, Notification: true},
		{Name: MethodPing, Direction: EitherWay},
		{Name: NotificationCancelled, Direction: EitherWay, Notification: true},
		{Name: NotificationProgress, Direction: EitherWay, Notification: true},

		{Name: MethodToolsList, Direction: ClientToServer},
		{Name: MethodToolsCall, Direction: ClientToServer, NameParam: "name"},
		{Name: NotificationToolsListChanged, Direction: ServerToClient, Notification: true},

		{Name: MethodPromptsList, Direction: ClientToServer},
		{Name: MethodPromptsGet, Direction: ClientToServer, NameParam: "name"},
		{Name: NotificationPromptsListChanged, Direction: ServerToClient, Notification: true},

		{Name: MethodResourcesList, Direction: ClientToServer},
		{Name: MethodResourcesTemplatesList, Direction: ClientToServer},
		{Name: MethodResourcesRead, Direction: ClientToServer, NameParam: "uri"},
		{Name: MethodResourcesSubscribe, Direction: ClientToServer, NameParam: "uri"},
		{Name: MethodResourcesUnsubscribe, Direction: ClientToServer, NameParam: "uri"},
		{Name: NotificationResourcesListChanged, Direction: ServerToClient, Notification: true},
		{Name: NotificationResourcesUpdated, Direction: ServerToClient, Notification: true, NameParam: "uri"},

		{Name: MethodCompletionComplete, Direction: ClientToServer},

		{Name: MethodLoggingSetLevel, Direction: ClientToServer},
		{Name: NotificationMessage, Direction: ServerToClient, Notification: true},

		{Name: MethodRootsList, Direction: ServerToClient},
		{Name: NotificationRootsListChanged, Direction: ClientToServer, Notification: true},
		{Name: MethodSamplingCreateMessage, Direction: ServerToClient},
	},
	codes: []int{CodeResourceNotFoundLegacy, CodeUserRejected},
	meta:  []string{MetaProgressToken},
}
