// Package events implements MCP Events (SEP-3415), the extension io.modelcontextprotocol/events:
// clients subscribe to occurrences at a server, such as a finished build, and receive them with a
// payload, by polling or on a stream.
//
// A server registers event types, as it registers tools. The schemas of the arguments and of the
// payload are derived from the Go types:
//
//	type Filter struct {
//		Branch string `json:"branch,omitzero"`
//	}
//	type Build struct {
//		Number int    `json:"number"`
//		Branch string `json:"branch"`
//	}
//	srv := events.NewServer(server, nil)
//	builds := events.Add(srv, &events.Event{Name: "build.finished"}, events.Source[Filter, Build]{
//		Match: func(ctx context.Context, f Filter, b Build) bool {
//			return f.Branch == "" || f.Branch == b.Branch
//		},
//	})
//	err := builds.Emit(events.Occurrence[Build]{Data: Build{Number: 7, Branch: "main"}})
//
// The server keeps the latest occurrences in memory for clients that poll or reconnect. If the
// occurrences are stored elsewhere, such as in a database or behind an API with cursors, set
// [Source].Check instead of calling Emit. The same source serves every delivery mode.
//
// A client receives the occurrences in a loop, which renews the subscription when the connection
// fails and drops duplicates:
//
//	for o, err := range events.Subscribe[Build](ctx, client, "build.finished", Filter{Branch: "main"}, nil) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(o.Data.Number)
//	}
//
// Payloads come from the server and its sources and must not be trusted: a model that reads them
// may read instructions of an attacker. An occurrence permits nothing; calls that follow it are
// authorized like all calls.
//
// The extension needs revision 2026-07-28. For older revisions the server neither declares it nor
// serves its methods.
//
// Spec: SEP-3415, Events Extension.
package events

// ID is the identifier of the extension, under which servers declare it (SEP-3415).
const ID = "io.modelcontextprotocol/events"

// Methods, notifications and the member of the subscription filter. Spec: SEP-3415, Reservations.
const (
	methodList   = "events/list"
	methodPoll   = "events/poll"
	methodStream = "events/stream"

	notificationActive      = "notifications/events/active"
	notificationEvent       = "notifications/events/event"
	notificationHeartbeat   = "notifications/events/heartbeat"
	notificationError       = "notifications/events/error"
	notificationTerminated  = "notifications/events/terminated"
	notificationListChanged = "notifications/events/list_changed"

	topicListChanged   = "eventsListChanged"
	metaSubscriptionID = "io.modelcontextprotocol/subscriptionId"
)

// capabilityMember is the top-level capability of the design before SEP-3415, which some clients
// read. Spec: SEP-3415, Backward Compatibility.
const capabilityMember = "events"

// A Mode is a way to deliver occurrences.
//
// Spec: SEP-3415, Delivery Modes.
type Mode string

// Delivery modes.
const (
	ModePoll    Mode = "poll"    // the client asks with events/poll
	ModePush    Mode = "push"    // the server sends notifications on an events/stream request
	ModeWebhook Mode = "webhook" // the server sends HTTP requests to the client; see [Server.Offer]
)
