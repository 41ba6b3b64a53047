package host

// A Channel is a way to ask for the approval of a request.
type Channel string

// Channels of approvals.
const (
	// ChannelClient asks the user of the caller's own client, which the approval is only as
	// trustworthy as. It needs a client with form elicitation.
	ChannelClient Channel = "client"
	// ChannelConsole waits for the operator: see [Approvals].
	ChannelConsole Channel = "console"
	// ChannelWebhook asks [Options.Webhook].
	ChannelWebhook Channel = "webhook"
)
