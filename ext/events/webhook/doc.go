// Package webhook delivers the events of MCP servers by HTTP POST: the webhook mode of the extension
// io.modelcontextprotocol/events. It contains both ends, the [Sender] of a server and the [Receiver]
// of a client, and the signatures of Standard Webhooks between them ([Sign], [Verify]).
//
// # Sender
//
// A subscription belongs to a principal, a URL, the name of an event, and arguments; anonymous
// callers cannot subscribe. The Sender delivers its events one after another, in the order of the
// [Feed], so the cursor of each event is safe to keep: every event before it was accepted or given
// up. An attempt that fails is repeated after 5 s, 20 s, 80 s, 5 min and 5 min, each lengthened by up
// to a fifth. Then the event is given up, and the endpoint receives a gap before the next event. An
// endpoint that responds with 410 or 413 does not want the event again. After an hour of failures the
// Sender waits for a refresh by the client.
//
// With a durable [Store], such as the stores of stores/bolt and stores/postgres, subscriptions and their
// attempts survive a restart. Events are then sent again at most from the last second before the
// process was killed; their IDs are the same.
//
// # Security
//
// URLs come from clients, so the Sender trusts neither a URL nor its host:
//
//   - The URL must be https and must contain neither user nor fragment. The address of its host is
//     checked for each connection when it is dialled, and must be public: see [oauth.Fetcher].
//     Redirects are not followed, and at most 4 KiB of a response are read.
//   - Before a URL receives events for a principal, it must answer a challenge that is signed with
//     the secret of the client. The challenges for a host are limited.
//   - The client learns the category of a failure, and no text of a response.
//
// The Receiver handles only messages that a known secret signed within the last 5 minutes. The
// content of an event is still text of a server that may be hostile.
//
// Spec: SEP-3415, Webhook-Based Delivery (extension of revision 2026-07-28).
package webhook
