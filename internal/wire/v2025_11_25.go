package wire

// URL elicitation, tools in sampling, icons, experimental tasks, and client id metadata documents.
// The last revision with sessions. Spec:
// https://modelcontextprotocol.io/specification/2025-11-25/changelog
var november2025 = delta{
	version: VersionNovember2025,
	adds: []Feature{
		ErrorWithoutID,
		MetaSecondLabel,
		Icons, ImplementationDetails,
		Tasks, ToolExecution,
		ToolArgumentErrors, ToolNameFormat,
		SchemaDialect,
		SamplingTools, SamplingContentArrays, SamplingContextCapability,
		ElicitationURL, ElicitationIDs,
		ElicitationEnumTitled, ElicitationMultiSelect, ElicitationDefaults,
		SSEPriming,
		OriginForbidden,
		WellKnownResourceMetadata, OIDCDiscovery, PKCEAdvertised, ScopeChallenges, ClientIDMetadata,
	},
	deprecates: []Feature{SamplingContext, ElicitationEnumNames},
	methods: []Method{
		{Name: MethodTasksGet, Direction: EitherWay},
		{Name: MethodTasksResult, Direction: EitherWay},
		{Name: MethodTasksList, Direction: EitherWay},
		{Name: MethodTasksCancel, Direction: EitherWay},
		{Name: NotificationTasksStatus, Direction: EitherWay, Notification: true},
		{Name: NotificationElicitationComplete, Direction: ServerToClient, Notification: true},
	},
	codes: []int{CodeURLElicitationRequired},
	meta:  []string{MetaRelatedTask, MetaImmediateResponse},
}
