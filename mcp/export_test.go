package mcp

// Functions that package mcphttp calls by internal/mcpint.
var (
	AppendResponse = appendResponse
	AppendResult   = appendResult
)
