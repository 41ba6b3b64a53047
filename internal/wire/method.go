package wire

// Direction says who may send a method.
type Direction uint8

const (
	// ClientToServer is a message that only clients send.
	ClientToServer Direction = iota + 1
	// ServerToClient is a message that only servers send.
	ServerToClient
	// EitherWay is a message that both sides send.
	EitherWay
	// InsideResult is a request that a server places in an `input_required` result. It is never a message of its own.
	InsideResult
)

// String returns the direction as an arrow between client and server, for documents and logs.
func (d Direction) String() string {
	switch d {
	case ClientToServer:
		return "client → server"
	case ServerToClient:
		return "server → client"
	case EitherWay:
		return "either way"
	case InsideResult:
		return "in a result"
	}
	return ""
}

// Method is what one revision says about a request or notification.
type Method struct {
	// Name is the method as it travels.
	Name string
	// Direction says who may send it.
	Direction Direction
	// Notification is true when it is never answered.
	Notification bool
	// NameParam is the member of params that names the thing asked about, "name" or "uri", and "" when there is none.
	NameParam string
	// MayAskInput is true when the answer may be an `input_required` result.
	MayAskInput bool
	// Cacheable is true when the result carries cache hints.
	Cacheable bool
}

// The methods of all revisions. Which revision has which is [Revision.Method]'s to say.
const (
	MethodInitialize = "initialize"
	MethodPing       = "ping"
	MethodDiscover   = "server/discover"

	MethodToolsList              = "tools/list"
	MethodToolsCall              = "tools/call"
	MethodPromptsList            = "prompts/list"
	MethodPromptsGet             = "prompts/get"
	MethodResourcesList          = "resources/list"
	MethodResourcesTemplatesList = "resources/templates/list"
	MethodResourcesRead          = "resources/read"
	MethodResourcesSubscribe     = "resources/subscribe"
	MethodResourcesUnsubscribe   = "resources/unsubscribe"
	MethodCompletionComplete     = "completion/complete"
	MethodLoggingSetLevel        = "logging/setLevel"
	MethodSubscriptionsListen    = "subscriptions/listen"

	MethodRootsList             = "roots/list"
	MethodSamplingCreateMessage = "sampling/createMessage"
	MethodElicitationCreate     = "elicitation/create"

	MethodTasksGet    = "tasks/get"
	MethodTasksResult = "tasks/result"
	MethodTasksList   = "tasks/list"
	MethodTasksCancel = "tasks/cancel"

	NotificationInitialized               = "notifications/initialized"
	NotificationCancelled                 = "notifications/cancelled"
	NotificationProgress                  = "notifications/progress"
	NotificationMessage                   = "notifications/message"
	NotificationToolsListChanged          = "notifications/tools/list_changed"
	NotificationPromptsListChanged        = "notifications/prompts/list_changed"
	NotificationResourcesListChanged      = "notifications/resources/list_changed"
	NotificationResourcesUpdated          = "notifications/resources/updated"
	NotificationRootsListChanged          = "notifications/roots/list_changed"
	NotificationElicitationComplete       = "notifications/elicitation/complete"
	NotificationTasksStatus               = "notifications/tasks/status"
	NotificationSubscriptionsAcknowledged = "notifications/subscriptions/acknowledged"
)
