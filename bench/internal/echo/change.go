package echo

const (
	// ChangeTool is like Tool, but each call changes the description of a tool,
	// so that subscribed clients receive notifications/tools/list_changed.
	ChangeTool = "change"
	// ChangeToolDescription describes ChangeTool in every server's tool list.
	ChangeToolDescription = "Change a description, then return the message"
	// ChangedTool is the tool whose description ChangeTool changes.
	ChangedTool = "changed"
	// UpdateTool is like Tool, but each call reports that UpdatedResource has
	// changed, so that its subscribers are notified.
	UpdateTool = "update"
	// UpdateToolDescription describes UpdateTool in every server's tool list.
	UpdateToolDescription = "Report that a resource was updated, then return the message"
	// UpdatedResource is the URI of the resource that UpdateTool updates.
	UpdatedResource = "bench://updated"
)
