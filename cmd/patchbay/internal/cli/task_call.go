package cli

import (
	"context"
	stdjson "encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// startTask calls a tool as a task, and prints the id of the task.
func (p *program) startTask(ctx context.Context, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	h, err := tasks.Start(ctx, c, tool.Name, arguments)
	if err != nil {
		return err
	}
	p.screen.done()
	if h.ID() == "" {
		result, err := h.Wait(ctx) // returns at once
		if err != nil {
			return err
		}
		p.screen.printf("The server returned the result at once, without a task.")
		return p.endCall(result)
	}
	t, err := h.Get(ctx)
	if err != nil {
		t = &tasks.Task{ID: h.ID(), Status: tasks.StatusWorking, Created: time.Now()} // it exists: it was just created
	}
	p.noteTask(t, tool.Name)
	if p.flags.json {
		p.output.value(map[string]any{"task": newTaskReport(t, tool.Name)})
		return nil
	}
	p.output.println(h.ID())
	p.screen.printf("Started. To wait for the result: %s", p.taskCommandLine("watch", h.ID()))
	if at := p.current.Load(); at.command != nil {
		p.screen.printf("The server exits now, and the task ends with it unless the server stores its tasks.")
	}
	return nil
}

// noteTask saves a note of a task.
func (p *program) noteTask(t *tasks.Task, tool string) *note {
	at := p.current.Load()
	n := &note{Key: at.key(), Target: at.public(), ID: t.ID, Tool: tool, Started: time.Now()}
	if t.TTL > 0 {
		n.Expires = n.Started.Add(t.TTL)
	}
	if err := n.save(); err != nil {
		p.screen.printf("patchbay: cannot save a note of the task: %s", clean(err.Error()))
	}
	return n
}
