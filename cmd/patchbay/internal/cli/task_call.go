package cli

import (
	"context"
	stdjson "encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// startTask calls a tool as a task, and tells how to go on.
func (p *program) startTask(ctx context.Context, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	h, err := tasks.Start(ctx, c, tool.Name, arguments)
	if err != nil {
		return err
	}
	p.screen.done()
	if h.ID() == "" {
		result, err := h.Wait(ctx) // which has it already
		if err != nil {
			return err
		}
		p.screen.printf("The server has answered at once, without a task.")
		return p.endCall(result)
	}
	t, err := h.Get(ctx)
	if err != nil {
		t = &tasks.Task{ID: h.ID(), Status: tasks.StatusWorking, Created: time.Now()} // it was there a moment ago
	}
	p.noteTask(t, tool.Name)
	if p.flags.json {
		p.output.value(map[string]any{"task": newTaskReport(t, tool.Name)})
		return nil
	}
	p.output.println(h.ID())
	p.screen.printf("Started. %s waits for the result.", p.taskCommandLine("watch", h.ID()))
	if at := p.current.Load(); at.command != nil {
		p.screen.printf("The server ends now, and the task with it, unless the server keeps its tasks.")
	}
	return nil
}

// noteTask remembers a task.
func (p *program) noteTask(t *tasks.Task, tool string) *note {
	at := p.current.Load()
	n := &note{Key: at.key(), Target: at.public(), ID: t.ID, Tool: tool, Started: time.Now()}
	if t.TTL > 0 {
		n.Expires = n.Started.Add(t.TTL)
	}
	if err := n.remember(); err != nil {
		p.screen.printf("patchbay: the task is not remembered here: %s", clean(err.Error()))
	}
	return n
}
