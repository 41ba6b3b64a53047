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
// is there for the view alone has the Visibility [App], and clients without apps do not see it.
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
// the specification and the host's functions allow, refuses the rest, and logs all of it.
//
// What comes from a server and from its page is a stranger's. Package apps parses it strictly; showing that a frame is not
// the host's own, limiting what it computes and asking the user remain with the host.
//
// Spec: SEP-1865, MCP Apps, 2026-01-26.
package apps
