package wire

// Methods of the events extension, which no revision defines. MethodEventsStream opens a stream; see Lasts. The
// others create, rotate and end the webhook of a principal.
const (
	MethodEventsStream      = "events/stream"
	MethodEventsSubscribe   = "events/subscribe"
	MethodEventsUnsubscribe = "events/unsubscribe"
)

// Lasts reports whether a request of the method lasts until its client or the server ends it. Such
// requests do not count as requests in progress, and end first when a server shuts down. Inlining it
// makes servers larger and not faster.
//
// Spec: basic/patterns/subscriptions (2026-07-28); events extension (SEP-3415), Lifecycle.
//
//go:noinline
func Lasts(method string) bool {
	return method == MethodSubscriptionsListen || method == MethodEventsStream
}
