// Package apps implements MCP Apps (SEP-1865, revision 2026-01-26 with the additions of its draft),
// the extension io.modelcontextprotocol/ui: user interfaces of a server that a host shows within
// the conversation.
//
// # Servers
//
// A view is an HTML document with a ui:// URI. The view of a tool shows its results:
//
//	views := apps.New(s)
//	views.Add(&apps.View{URI: "ui://clock/face", Name: "clock"}, clockHTML)
//	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "time"}, &apps.ToolUI{View: "ui://clock/face"}), now)
//
// A tool returns its result as text, too, because not every client shows views. [Supported] reports
// whether the client does. [Frame] declares the origins and permissions that the view needs;
// without it the view contains only its document. A tool with the Visibility [VisibilityApp] alone
// is called by its view only, and clients without views do not see it.
//
// # Pages
//
// In its frame, the view's document exchanges JSON-RPC 2.0 messages with the host: it posts
// messages to the parent window, and accepts messages whose event.source is that window. It must
//
//   - send the request ui/initialize, with appInfo, appCapabilities and the protocolVersion
//     [Revision]; the response contains hostInfo, hostCapabilities and hostContext;
//   - then send the notification ui/notifications/initialized, before which the host sends no
//     message;
//   - handle the notifications ui/notifications/tool-input and then ui/notifications/tool-result,
//     whose params are the result to show, or ui/notifications/tool-cancelled;
//   - answer the request ui/resource-teardown with {} when it has saved its state.
//
// It may send the requests tools/list, tools/call, resources/read, sampling/createMessage,
// ui/open-link, ui/download-file, ui/message, ui/update-model-context and ui/request-display-mode,
// as far as the host supports them, and the notifications ui/notifications/size-changed,
// ui/notifications/request-teardown, notifications/cancelled and notifications/message. A page with
// the capability tools answers the requests tools/list and tools/call of its host. See examples/app
// for a view with its script.
//
// # Hosts
//
// A host is a client that shows views. [Declare] makes its options declare that, and a [Host] reads
// the views:
//
//	c, err := mcp.Connect(ctx, transport, apps.Declare(nil))
//	h := apps.NewHost(c, nil)
//	tools, err := h.ModelTools(ctx)  // those that the model may see
//	page, err := h.Page(ctx, "time") // the view of a tool, checked
//	b := h.Bridge(page, &apps.BridgeOptions{Send: toFrame, AllowTool: askUser})
//
// A [Page] contains the Content-Security-Policy, attributes and HTTP headers that isolate its
// frame. A [Bridge] handles and logs the messages of the page, as far as the specification and the
// host's functions allow them. The program examples/apphost is a complete host in a browser.
//
// A script can navigate its own frame, which no attribute of a sandbox prevents. The next document
// is not restricted by the policy of the page and must not be trusted like it. But it can post
// messages to the host, and its URL can contain data of the page. A host that is a web page sets
// frame-src in its own policy to the origin of its views only. Any other host refuses navigation in
// its browser component, and tears the bridge down if the frame loads a second document.
//
// Everything that comes from a server or its page is untrusted, and parsed strictly. The host has
// to mark the frame as foreign content, to limit its use of the CPU, and to ask the user.
package apps
