package echo

const (
	// ChangeTool is Tool, but for each call it changes the description of a
	// tool, so that clients that listen are told that the list has changed.
	ChangeTool = "change"
	// ChangeToolDescription describes ChangeTool in every server's tool list.
	ChangeToolDescription = "Change a description, then return the message"
	// ChangedTool is the tool whose description ChangeTool changes.
	ChangedTool = "changed"
)
