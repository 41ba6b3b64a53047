// Package tasks implements tasks: tool calls whose result the client fetches later.
//
// It implements the extension io.modelcontextprotocol/tasks (SEP-2663) for revision 2026-07-28 and
// later, and the tasks of revision 2025-11-25 (SEP-1686), for servers and clients.
//
// # Servers
//
// A server creates a [Server] and registers tools that may take long with [AddTool]:
//
//	s := mcp.NewServer("press", "1.0.0", nil)
//	t := tasks.NewServer(s, nil)
//	tasks.AddTool(t, &mcp.Tool{Name: "print"}, nil, print)
//
// The function is an ordinary tool handler: it asks questions with [mcp.Ask], reports progress with
// [mcp.Progress] and returns a result. For a client that supports tasks the call returns a task at
// once, and the handler runs in the background. Every other client waits for the result. While a
// task waits for an answer, no goroutine runs for it.
//
// # Clients
//
// A client that connects with the options of [Declare] supports tasks. Its calls wait for them, or
// return a handle:
//
//	c, err := mcp.Connect(ctx, transport, tasks.Declare(&mcp.ClientOptions{Elicit: ask}, nil))
//	text, err := mcp.CallTool[string](ctx, c, "print", book) // waits, and answers the task's questions
//	h, err := tasks.Start(ctx, c, "print", book)             // does not wait
//	result, err := tasks.Resume(c, h.ID()).Wait(ctx)         // later, in any process
//
// # Restarts
//
// A [Store] keeps the tasks. The tasks of [NewMemory] end with the process. Package stores/bolt
// keeps them in a file. A server with such a store calls [Server.Recover] after its tools are
// registered. Then finished tasks can be read, and waiting tasks answered. A task whose handler was
// interrupted fails, or runs again if its tool is [ToolOptions.Restartable]. No handler runs twice
// without that option.
//
// # Several processes
//
// Servers of several processes may use a [SharedStore], such as a database, at once. Each task runs
// in one of them, and any of them reads, answers and cancels it. A server renews a lease every ten
// seconds. If it fails to do so, the contexts of its runs end after 50 seconds, and after a minute
// another server continues its tasks as after a restart. [Options.Lease] changes these times.
//
// # Ownership
//
// A task belongs to the principal whose call created it (see [mcp.Principal]). For every other
// principal it does not exist. If the transport does not authenticate its callers, any of them that
// knows the id of a task can read, answer and cancel it. Ids contain 130 random bits.
//
// # Revisions
//
// In the extension the server decides which calls become tasks, and clients poll with tasks/get or
// subscribe. In revision 2025-11-25 the client asks for a task with each call, and tasks/result
// waits for the result and carries the task's questions. A [Server] serves the same tasks to both,
// each with the statuses of its revision. For clients of older revisions a tool is an ordinary
// tool, and a tool with [ToolOptions.Required] is not listed and cannot be called.
package tasks
