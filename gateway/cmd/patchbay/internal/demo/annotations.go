package demo

import "github.com/patchbay-mcp/patchbay/mcp"

// Annotations say what a tool may do. Hosts call a read-only tool with fewer questions. A tool
// without annotations counts as destructive.

// readOnly returns the annotations of a tool without effects.
func readOnly() *mcp.ToolAnnotations {
	yes, no := true, false
	return &mcp.ToolAnnotations{ReadOnly: &yes, OpenWorld: &no}
}

// additive returns the annotations of a tool that only adds data.
func additive() *mcp.ToolAnnotations {
	no := false
	return &mcp.ToolAnnotations{ReadOnly: &no, Destructive: &no, OpenWorld: &no}
}

// resetting returns the annotations of a tool that destroys something, once.
func resetting() *mcp.ToolAnnotations {
	yes, no := true, false
	return &mcp.ToolAnnotations{ReadOnly: &no, Destructive: &yes, Idempotent: &yes, OpenWorld: &no}
}
