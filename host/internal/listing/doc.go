// Package listing reads and keeps the lists of servers: tools, prompts, resources and resource
// templates.
//
// [Lists] holds the lists that a server offers to a caller, or to all callers of a shared server,
// and follows their changes. It reads them through a [Source] and hides definitions that a
// [Reviewer] does not approve. It knows neither views nor callers: a [Listener] learns of changes
// of lists, and a [Subscriber] of changes of resources.
package listing
