package echo

const (
	// ChangeTool is Tool, but for each call it changes the description of a
	// tool, so that clients that listen are told that the list has changed.
	ChangeTool = "change"
	// ChangeToolDescription describes ChangeTool in every server's tool list.
	ChangeToolDescription = "Change a description, then return the message"
	// ChangedTool is the tool whose description ChangeTool changes.
	ChangedTool = "changed"
	// UpdateTool is Tool, but each call reports that UpdatedResource has
	// changed, so that its subscribers are notified.
	UpdateTool = "update"
	// UpdateToolDescription describes UpdateTool in every server's tool list.
	UpdateToolDescription = "Report that a resource was updated, then return the message"
	// UpdatedResource is the URI of the resource that UpdateTool updates.
	UpdatedResource = "bench://updated"
)
