package wire

// Streamable HTTP replaces HTTP with two endpoints, and OAuth is added. Batches are added, and
// removed in the next revision. Spec:
// https://modelcontextprotocol.io/specification/2025-03-26/changelog
var march2025 = delta{
	version: VersionMarch2025,
	adds: []Feature{
		Batches,
		ProgressMessage,
		AudioContent,
		ToolAnnotations,
		CompletionsCapability,
		StreamableHTTP, SessionHTTP, SSEResumption,
		Authorization, AuthorizationAtServer, DynamicRegistration,
	},
	deprecates: []Feature{HTTPSSE},
}
