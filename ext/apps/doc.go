// Package apps is MCP Apps: user interfaces that a server brings along, shown by a host within the conversation.
//
// # Servers
//
// A view is an HTML document under a ui:// URI. A tool that is linked to it has its results shown there:
//
//	views := apps.New(s)
//	views.Add(&apps.View{URI: "ui://clock/face", Name: "clock"}, clockHTML)
//	mcp.AddTool(s, views.Link(&mcp.Tool{Name: "time"}, &apps.ToolUI{View: "ui://clock/face"}), now)
//
// A tool gives its result as text too: not every client shows views. [Supported] tells which do. What the view needs of
// the web, of the user's devices and of its frame stands in [Frame]; without it, it gets nothing but itself. A tool that
// is there for the view alone has the Visibility [VisibilityApp], and clients without apps do not see it.
//
// # Pages
//
// In its frame, the view's document speaks JSON-RPC 2.0 with the host: it posts its messages to the parent window, and
// takes those whose event.source is that. It has to
//
//   - send the request ui/initialize, with appInfo, appCapabilities and the protocolVersion [Revision]; the answer has
//     hostInfo, hostCapabilities, and in hostContext the theme, the styles and what else the host tells;
//   - then send the notification ui/notifications/initialized: nothing comes before it;
//   - take the notification ui/notifications/tool-result, whose params are the result that it is there to show; before that
//     comes ui/notifications/tool-input, with the call's arguments, and ui/notifications/tool-cancelled says that there
//     will be no result;
//   - answer the request ui/resource-teardown, with {}, when it has put its things away.
//
// It may send the requests tools/call, resources/read, ui/open-link, ui/message, ui/update-model-context and
// ui/request-display-mode, as far as the host takes them, and the notifications ui/notifications/size-changed and
// notifications/message. The page of the program examples/app does this in forty lines of script; for larger ones there is
// the package @modelcontextprotocol/ext-apps of npm.
//
// # Hosts
//
// A host is a client that shows views. [Declare] makes its options say so; a [Host] stands beside the client:
//
//	c, err := mcp.Connect(ctx, transport, apps.Declare(nil))
//	h := apps.NewHost(c, nil)
//	tools, err := h.ModelTools(ctx)    // those that the model may see
//	page, err := h.Page(ctx, "time")   // the view of a tool, checked
//	b := h.Bridge(page, &apps.BridgeOptions{Send: toFrame, AllowTool: askUser})
//
// A [Page] has all that makes the frame safe: the Content-Security-Policy, the frame's sandbox and allow attributes, and
// HTTP headers for hosts that serve the page. A [Bridge] answers what the page says by postMessage: it lets through what
// the specification and the host's functions allow, refuses the rest, and logs all of it. The program examples/apphost is
// a whole host in a browser.
//
// What comes from a server and from its page is a stranger's. Package apps parses it strictly; showing that a frame is not
// the host's own, limiting what it computes and asking the user remain with the host.
//
// Spec: SEP-1865, MCP Apps, 2026-01-26.
package apps
