package wire

// A Direction says which side may send a method.
type Direction uint8

const (
	// ClientToServer marks messages that only clients send.
	ClientToServer Direction = iota + 1
	// ServerToClient marks messages that only servers send.
	ServerToClient
	// EitherWay marks messages that both sides send.
	EitherWay
	// InsideResult marks requests that are part of an `input_required` result. They are never sent
	// as messages.
	InsideResult
)

// A Method describes a request or notification in a revision.
type Method struct {
	// Name is the method as sent.
	Name string
	// Direction says which side may send it.
	Direction Direction
	// Notification is true for notifications.
	Notification bool
	// NameParam is the member of params that names the tool, prompt or resource, "name" or "uri";
	// "" without such a member.
	NameParam string
	// MayAskInput is true if the result may be `input_required`.
	MayAskInput bool
	// Cacheable is true if the result contains cache hints.
	Cacheable bool
}

// The methods of all revisions. [Revision.Method] reports which revisions define them.
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
