package task

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Call is a tools/call that may become a task.
type Call struct {
	tasks          *Caller
	caller, server Form
	wanted         bool // a caller of 2025-11-25 asks for a task
	declares       bool // the server must know that its client supports the extension
	tool           string
	definition     *catalogue.Item // of the tool; may be nil
}

// DeclaresTasks reports whether the host must declare the extension to the server.
func (c *Call) DeclaresTasks() bool { return c.declares }

// Begin returns how a tools/call becomes a task in the form of its server, and the request in that
// form. It returns nil for a call without tasks. definition may be nil.
func (c *Caller) Begin(
	req *mcp.Request, s *Server, tool string, definition *catalogue.Item,
) (*Call, *mcp.Request, error) {
	server := s.Form()
	if server == None && !coreTasks(req.Revision()) {
		return nil, req, nil
	}
	begun := &Call{tasks: c, caller: FormOf(req), server: server, tool: tool, definition: definition}
	support := ""
	if definition != nil && begun.server == Session && begun.caller != Session {
		support = Support(definition.Raw)
	}
	if !Usable(begun.caller, begun.server, support) {
		if IsModern(req.Revision()) {
			return nil, nil, driver.MissingClientCapability([]byte(`{"extensions":{"` + Extension + `":{}}}`))
		}
		return nil, nil, errUnknownTool(tool)
	}
	begun.wanted = begun.caller == Session && jsonscan.HasObject(req.Params, "task")
	var params json.RawMessage
	switch {
	case begun.wanted && begun.server == None:
		return nil, nil, mcp.Errorf(mcp.CodeMethodNotFound,
			"this tool does not run as a task: call it without params.task")
	case begun.wanted && begun.server == Extended:
		params = jsonscan.Without(req.Params, "task")
		begun.declares = true
	case begun.caller == Extended && begun.server == Session && support != "" && support != "forbidden":
		params = jsonscan.WithMember(req.Params, "task", []byte("{}"))
	case begun.caller != Session && jsonscan.HasObject(req.Params, "task"): // the member does not apply to this caller
		params = jsonscan.Without(req.Params, "task")
	default:
		return begun, req, nil
	}
	inner := *req
	inner.Params = params
	return begun, &inner, nil
}

// Usable reports whether a caller can call a tool with this Support.
func Usable(caller, server Form, support string) bool {
	return server != Session || support != supportRequired || caller != None
}

func errUnknownTool(tool string) error {
	return mcp.Errorf(mcp.CodeInvalidParams,
		"unknown tool %q: it runs as a task only, which the client does not support", tool)
}

// Result returns the result of a call that became a task, as the caller receives it.
func (c *Call) Result(s Sender, at Place, raw mcp.RawResult) (mcp.Result, error) {
	id := ToolRef(c.tool, c.definition)
	id.Class, id.Instance = at.Class, at.Instance
	return c.created(s, s.Info(), id, raw)
}

// ToolRef returns the part of the id of a task that identifies its tool.
func ToolRef(tool string, definition *catalogue.Item) Ref {
	id := Ref{Tool: tool}
	if definition != nil {
		id.Digest = DigestText(definition)
	}
	return id
}

// Keep keeps a result and returns that of a call that became a task.
func (c *Caller) Keep(req *mcp.Request, server string, id Ref, raw mcp.RawResult) (mcp.Result, error) {
	k := &keptTask{id: rand.Text(), principal: c.Principal, created: time.Now(), ttl: keptTTL,
		result: slices.Clone(raw)}
	task, _ := req.Param("task")
	ttl, _ := jsonscan.Get(task, "ttl")
	if ms, err := strconv.ParseFloat(string(ttl), 64); err == nil && ms >= 0 {
		k.ttl = time.Duration(math.Min(ms, float64(keptTTL.Milliseconds()))) * time.Millisecond
		k.ttl = max(k.ttl, minKeptTTL)
	}
	id.Kept = k.id
	kept, err := c.newTask(c.Sender(server), server, id)
	if err != nil {
		return nil, err
	}
	k.handle = kept.Handle
	c.addKept(k)
	c.note(kept, append(append([]byte{'{'}, k.members(k.status())[1:]...), '}'), true)
	b := append([]byte(`{"resultType":"task","task":{`), k.members(taskWorking)[1:]...) // tasks begin so
	return mcp.RawResult(append(b, "}}"...)), nil
}

// created returns the result of a call that became a task.
func (c *Call) created(s Sender, server Server, id Ref, raw mcp.RawResult) (mcp.Result, error) {
	made := []byte(raw)
	if c.server == Session {
		made, _ = jsonscan.Get(raw, "task")
	}
	id.ID = jsonscan.GetString(made, "taskId")
	if c.server == None || c.caller == None || id.ID == "" || c.caller == Session && !c.wanted {
		return nil, &hosterr.Error{Code: hosterr.CodeInvalidResult, Server: server.Name, MayHaveRun: true,
			Err: errors.New("the result is a task that was not asked for, or has no id")}
	}
	t, err := c.tasks.newTask(s, server.Name, id)
	if err != nil {
		return nil, err
	}
	c.tasks.note(t, made, true)
	switch {
	case c.caller == Extended && c.server == Extended:
		return c.tasks.Public(t, raw), nil
	case c.caller == Extended:
		status := jsonscan.GetString(made, "status")
		b := append([]byte(`{"resultType":"task"`), extendedMembers(made, t.Handle, status)...)
		return mcp.RawResult(append(b, '}')), nil
	case c.server == Extended:
		b := append([]byte(`{"resultType":"task","task":{`), sessionMembers(made, t.Handle)[1:]...)
		return mcp.RawResult(append(b, "}}"...)), nil
	}
	made = jsonscan.WithMember(made, "taskId", jsonscan.AppendQuote(nil, t.Handle))
	return mcp.RawResult(relate(jsonscan.WithMember(raw, "task", made), "")), nil
}

// extendedMembers are [taskMembers] in the form of the extension, whose ttlMs is required.
func extendedMembers(task []byte, handle, status string) []byte {
	b := taskMembers(task, Extended, handle, status)
	if _, ok := jsonscan.Get(task, "ttl"); !ok {
		b = append(b, `,"ttlMs":null`...)
	}
	return b
}
