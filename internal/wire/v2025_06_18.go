package wire

// Structured tool output, elicitation, and servers as OAuth resource servers. Spec:
// https://modelcontextprotocol.io/specification/2025-06-18/changelog
var june2025 = delta{
	version: VersionJune2025,
	adds: []Feature{
		DataMeta, MetaKeyGrammar,
		Titles,
		ResourceLinks, LastModified,
		StructuredContent,
		CompletionContext,
		Elicitation, ElicitationEnumNames,
		ProtocolVersionHeader,
		ProtectedResourceMetadata, ResourceIndicators,
	},
	removes: []Feature{Batches, AuthorizationAtServer},
	methods: []Method{
		{Name: MethodElicitationCreate, Direction: ServerToClient},
	},
}
