package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Tasks of the core, which only one revision has.
const (
	clientRevision2025 = "2025-11-25"
	methodResult       = "tasks/result"
	methodList         = "tasks/list"

	supportRequired = "required"
	supportOptional = "optional"
)

// maxSupporting bounds the tools that are known to take tasks: more than any host shows.
const maxSupporting = 10_000

// formOf returns the form of tasks that the revision of a request has.
func formOf(req *mcp.Request) form { return formIn(req.Revision()) }

func formIn(revision string) form { return form{is2025: revision == clientRevision2025} }

// A manner is how a call is sent.
type manner uint8

const (
	asServerLikes manner = iota // the server decides whether it becomes a task
	asCall                      // it must not become one
	asTask                      // it has to
)

// augment returns a call the form that makes it a task, if it is to be one and that is for the client to say.
//
// Spec: basic/utilities/tasks (2025-11-25), Tool-Level Negotiation.
func (k *taker) augment(ctx context.Context, in *intent, req *mcp.Request) (*mcp.Request, manner) {
	if req.Revision() > clientRevision2025 {
		return req, asServerLikes
	}
	if !callsTasks(ctx, req) {
		return req, asCall
	}
	tool := toolOf(req)
	if !k.tools.isListed(tool) {
		k.listTools(ctx, mcp.CallOptions{})
	}
	switch support := k.tools.of(tool); {
	case support == supportRequired, support == supportOptional && in != nil:
		return k.asTask(req), asTask
	}
	return req, asCall
}

// augmentAnew is augment with a list of tools that is not older than the call.
func (k *taker) augmentAnew(ctx context.Context, req *mcp.Request) (*mcp.Request, manner) {
	if !callsTasks(ctx, req) {
		return req, asCall
	}
	k.listTools(ctx, mcp.CallOptions{NoCache: true})
	if k.tools.of(toolOf(req)) != supportRequired {
		return req, asCall
	}
	return k.asTask(req), asTask
}

// callsTasks reports whether the server takes calls as tasks, in the form of 2025-11-25.
func callsTasks(ctx context.Context, req *mcp.Request) bool {
	offered := capabilityOf(mcp.ClientFrom(ctx))
	return formOf(req).is2025 && offered.Requests.Tools.Call != nil
}

// A capability2025 is the capability of a server for tasks. An absent member is not supported.
//
// Spec: basic/utilities/tasks (2025-11-25), Server Capabilities.
type capability2025 struct {
	List     *struct{} `json:"list"`
	Requests struct {
		Tools struct {
			Call *struct{} `json:"call"`
		} `json:"tools"`
	} `json:"requests"`
}

// capabilityOf returns the capability of a client's server. A malformed one is not supported.
func capabilityOf(c *mcp.Client) capability2025 {
	var offered capability2025
	if raw := c.Capabilities().Tasks; raw != nil && json.Unmarshal(raw, &offered) != nil {
		return capability2025{}
	}
	return offered
}

func (k *taker) asTask(req *mcp.Request) *mcp.Request {
	var task struct {
		TTL int64 `json:"ttl,omitzero"`
	}
	task.TTL = k.opts.TTL.Milliseconds()
	raw, err := json.Marshal(task)
	if err != nil {
		raw = []byte("{}") // a number always encodes
	}
	return withMember(req, "task", raw)
}

// listTools fetches the list of tools. What it says is noted on its way, by list.
func (k *taker) listTools(ctx context.Context, o mcp.CallOptions) {
	for _, err := range mcp.ClientFrom(ctx).Tools(mcp.WithCallOptions(ctx, o)) {
		if err != nil {
			k.opts.Logger.DebugContext(ctx, "tasks: it is unknown which tools are called as tasks", "error", err)
			return
		}
	}
	k.tools.setComplete()
}

// list passes a list of tools on, and notes which of them take tasks.
func (k *taker) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	res, err := k.next.ServeMCP(ctx, req)
	if err != nil || res == nil || !formOf(req).is2025 {
		return res, err
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	var page struct {
		Tools []stdjson.RawMessage `json:"tools"`
	}
	if json.Unmarshal(raw, &page) == nil {
		for _, tool := range page.Tools {
			k.tools.note(tool)
		}
	}
	return res, nil
}

// A supportIndex is what a server says of its tools and tasks.
type supportIndex struct {
	mu         sync.Mutex
	support    map[string]string // by the name of the tool; only those that take tasks
	isComplete bool              // all tools have been listed once
}

// note takes the definition of a tool. A broken one is not called as a task.
func (x *supportIndex) note(raw []byte) {
	var tool struct {
		Name      string            `json:"name"`
		Execution struct {
			TaskSupport string `json:"taskSupport"`
		} `json:"execution"`
	}
	_ = json.Unmarshal(raw, &tool)
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.support, tool.Name)
	if s := tool.Execution.TaskSupport; s == supportRequired || s == supportOptional {
		if x.support == nil || len(x.support) >= maxSupporting {
			x.support = map[string]string{}
		}
		x.support[tool.Name] = s
	}
}

func (x *supportIndex) of(tool string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.support[tool]
}

// isListed reports whether it is known if the tool takes tasks.
func (x *supportIndex) isListed(tool string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isComplete || x.support[tool] != ""
}

func (x *supportIndex) setComplete() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.isComplete = true
}

func isMethodNotFound(err error) bool {
	var fault *mcp.Error
	return errors.As(err, &fault) && fault.Code == mcp.CodeMethodNotFound && fault.Remote()
}
