package task

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Stages contains the stage and the steps of calls that may become tasks. It is safe for concurrent use.
type Stages struct {
	// Leaving returns the connections of a server that was removed while a call waits there, or nil.
	Leaving func(server, connection string) call.Pool
}

// A View is the caller's side of a call, which the [call.Call.View] of each call must implement.
type View interface {
	call.View
	// Tasks returns the tasks of the caller.
	Tasks() *Caller
	// TaskServer describes a server.
	TaskServer(p call.Pool) Server
	// TaskSender returns the sender of requests about the tasks of a server.
	TaskSender(p call.Pool) Sender
}

// Begin declares the task that the caller asks for, or translates it to the form of the server.
func (s *Stages) Begin(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Kind != policy.ActionCall || c.Local != nil {
			return next(ctx, c)
		}
		v, p := c.View.(View), c.Pool
		if st, continues, err := c.Continues(); err != nil {
			return nil, err
		} else if continues {
			if leaving := s.Leaving(st.Server, st.Instance); leaving != nil {
				p = leaving
			}
		}
		server := v.TaskServer(p)
		begun, req, err := v.Tasks().Begin(c.Request, &server, c.Target, c.Item)
		if err != nil {
			return nil, err
		}
		if begun != nil {
			c.Task = begun
		}
		c.Sent = req
		return next(ctx, c)
	}
}

// Result returns the caller's form of a result that created a task. It must ignore all other results.
func (s *Stages) Result(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if failed != nil || c.Task == nil || c.Served.ID == "" || !ok || raw.ResultType() != call.ResultTask {
		return res, failed
	}
	at := Place{Class: c.Served.Class}
	if c.Served.Single {
		at.Instance = c.Served.ID
	}
	c.Published = true
	return c.Task.(*Call).Result(c.View.(View).TaskSender(c.Pool), at, raw)
}

// Keep returns the task that a caller of 2025-11-25 has asked for, if a server of the extension has responded
// at once. The task contains the result that the policy and the limits leave. Keep must ignore all other results.
func (s *Stages) Keep(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if failed != nil || !ok || c.Kind != policy.ActionCall || !coreTasks(c.Request.Revision()) {
		return res, failed
	}
	if task, _ := c.Request.Param("task"); !jsonscan.IsObject(task) || raw.ResultType() != driver.ResultComplete {
		return res, nil
	}
	v := c.View.(View)
	server := v.TaskServer(c.Pool)
	if server.Form() != Extended {
		return res, nil
	}
	return v.Tasks().Keep(c.Request, server.Name, ToolRef(c.Target, c.Item), raw)
}
