// Package tasks is long work: tool calls that go on after their answer, and are asked for their result later.
//
// A server makes a [Manager] and registers those tools with [AddTool] that may take long:
//
//	s := mcp.NewServer("press", "1.0.0", nil)
//	m := tasks.New(s, nil)
//	tasks.AddTool(m, &mcp.Tool{Name: "print"}, nil, print)
//
// The function is written as any tool's: it asks with [mcp.Ask], tells with [mcp.Progress], ends with its result. A client
// that can take a task gets one at once, and the function runs without it; every other client waits for the result, as ever.
// While a task waits for an answer nothing runs, however long that takes.
//
// # Clients
//
// A client that connects with [WithTasks] waits for tasks where it calls, or takes a handle:
//
//	c, err := mcp.Connect(ctx, transport, tasks.WithTasks(&mcp.ClientOptions{Elicit: ask}, nil))
//	text, err := mcp.Call[string](ctx, c, "print", book)  // waits, and asks what the task asks
//	h, err := tasks.Start(ctx, c, "print", book)          // does not wait
//	result, err := tasks.Resume(c, h.ID()).Wait(ctx)      // later, in any process
//
// # What outlives a restart
//
// A [Store] keeps the tasks. With [NewMemory] they are gone with the process; package stores/bolt has one that keeps them in
// a file. A server with such a store calls [Manager.Recover] after its tools are registered: finished tasks can be read,
// waiting ones answered, and what was cut off fails with a clear error, or runs again where [ToolOptions.Again] says that
// it may. No run is begun twice without that.
//
// # Whose task it is
//
// A task belongs to the principal whose call made it (see [mcp.Principal]). To anybody else it does not exist. Where the
// transport authenticates nobody, whoever knows the id of a task can read, answer and cancel it; ids have 130 random bits.
//
// # Two forms
//
// Clients of revision 2026-07-28 and later speak the extension io.modelcontextprotocol/tasks; the server decides what becomes
// a task. Clients of 2025-11-25 speak the tasks of that revision's core: they ask for a task with each call, and read the
// result with tasks/result, which waits for it and brings them the task's questions. Both see the same tasks, each with the
// statuses of its own form. To clients of older revisions a tool is an ordinary one, and a tool with [ToolOptions.Required] is
// not listed and cannot be called.
package tasks
