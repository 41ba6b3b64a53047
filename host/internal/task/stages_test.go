package task_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// A view is the caller ann, who uses one server.
type view struct {
	call.View
	tasks  *task.Caller
	sender sender
}

func (v *view) Tasks() *task.Caller              { return v.tasks }
func (v *view) TaskSender(call.Pool) task.Sender { return v.sender }
func (v *view) TaskServer(call.Pool) task.Server { return v.sender.Info() }

// A sender describes a server.
type sender struct {
	task.Sender
	server task.Server
}

func (s sender) Info() task.Server { return s.server }

// sessionServer has tasks of revision 2025-11-25.
var sessionServer = task.Server{Name: "shop", Revision: "2025-11-25",
	Capabilities: []byte(`{"tasks":{"requests":{"tools":{"call":{}}}}}`)}

// newCall returns a tools/call of a modern client that may support the extension of tasks.
func newCall(t *testing.T, supportsTasks bool, params string) *call.Call {
	t.Helper()
	rounds, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := "{}"
	if supportsTasks {
		capabilities = `{"extensions":{"` + task.Extension + `":{}}}`
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{Method: "tools/call", Params: jsonscan.WithMember([]byte(params), "_meta",
		[]byte(`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":`+capabilities+`}`))})
	if err != nil {
		t.Fatal(err)
	}
	caller := &task.Caller{Table: &task.Table{Ring: rounds.Ring}, Ctx: t.Context(), Principal: "ann"}
	return &call.Call{View: &view{tasks: caller, sender: sender{server: sessionServer}}, Kind: policy.ActionCall,
		Target: "buy", Request: req, Item: &catalogue.Item{Kind: catalogue.Tools,
			Raw: []byte(`{"name":"buy","execution":{"taskSupport":"optional"}}`)}}
}

func TestCallsBecomeTasksInTheFormOfTheServer(t *testing.T) {
	s := &task.Stages{Leaving: func(string, string) call.Pool { return nil }}
	c := newCall(t, true, `{"name":"buy"}`)
	res, err := s.Begin(func(_ context.Context, c *call.Call) (mcp.Result, error) {
		if !jsonscan.HasObject(c.Sent.Params, "task") {
			t.Errorf("the server receives %s, which asks for no task", c.Sent.Params)
		}
		c.Served.ID = "1"
		return mcp.RawResult(`{"resultType":"task","task":{"taskId":"7","status":"working"}}`), nil
	})(t.Context(), c)
	if err == nil {
		res, err = s.Result(t.Context(), c, res, nil)
	}
	raw, _ := res.(mcp.RawResult)
	id := jsonscan.GetString(raw, "taskId")
	if err != nil || id == "" || id == "7" || !c.Published {
		t.Fatalf("got %s, %v, want a task with an id of the host", raw, err)
	}
	if kept, err := s.Keep(t.Context(), c, res, nil); err != nil || string(kept.(mcp.RawResult)) != string(raw) {
		t.Errorf("the task was kept as %v, %v", kept, err)
	}
}

func TestTasksThatNobodyAskedForAreRefused(t *testing.T) {
	s := &task.Stages{}
	c := newCall(t, false, `{"name":"buy"}`)
	res, err := s.Begin(func(_ context.Context, c *call.Call) (mcp.Result, error) {
		if jsonscan.Has(c.Sent.Params, "task") {
			t.Errorf("the server receives %s, which asks for a task", c.Sent.Params)
		}
		c.Served.ID = "1"
		return mcp.RawResult(`{"resultType":"task","task":{"taskId":"7","status":"working"}}`), nil
	})(t.Context(), c)
	if err == nil {
		res, err = s.Result(t.Context(), c, res, nil)
	}
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeInvalidResult || !e.MayHaveRun {
		t.Errorf("got %v, %v, want an error with the code %s", res, err, hosterr.CodeInvalidResult)
	}
	c = newCall(t, false, `{"name":"buy"}`)
	c.Item.Raw = []byte(`{"name":"buy","execution":{"taskSupport":"required"}}`)
	_, err = s.Begin(func(context.Context, *call.Call) (mcp.Result, error) {
		t.Error("a call that must become a task was sent")
		return nil, nil
	})(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "capability") {
		t.Errorf("a tool that requires tasks: %v", err)
	}
}
