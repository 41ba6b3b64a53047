package legacy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A server of 2025-11-25 may send a task-augmented request, with a member "task", and fetch the
// result later. The client responds with a task at once and then serves the request. The server
// manages the task with the same methods that clients use for tasks of servers.

const (
	// maxRunningTasks limits the tasks whose requests are being served. It leaves half of
	// maxServerRequests for tasks/result and tasks/cancel.
	maxRunningTasks = maxServerRequests / 2
	// maxTasks limits the tasks of a session, including those that ended. A list of them is
	// a single message. Beyond it, the oldest ended tasks are removed before their ttl.
	maxTasks = 128
	// maxTaskBytes limits the results and errors that are kept until they are fetched. Beyond it,
	// the oldest ended tasks are removed.
	maxTaskBytes = 16 << 20
	// maxTaskMessage limits the status message of a failed task, in bytes. tasks/result returns the
	// whole error.
	maxTaskMessage = 256

	// leastTaskTTL is the shortest ttl. The server needs some time to fetch the result.
	leastTaskTTL = time.Second
	// defaultTaskTTL is the ttl if the server requests no ttl. It is longer than input requests
	// usually wait for a user.
	defaultTaskTTL = time.Hour
	// maxTaskTTL is the longest ttl.
	maxTaskTTL = 24 * time.Hour
	// taskPollInterval is how often the server should poll a task that waits for a user.
	taskPollInterval = time.Second
	// taskTimeFormat is ISO 8601, in UTC and to the millisecond.
	taskTimeFormat = "2006-01-02T15:04:05.000Z"
)

// The statuses of the client's tasks. No status requires input: clients send no input requests.
//
// Spec: basic/utilities/tasks#task-status (2025-11-25)
const (
	taskWorking   = "working"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

var (
	errTaskExpired = errors.New("the ttl of the task is over")

	errTaskCancelled = &jsonrpc.Error{Code: wire.CodeInternalError, Message: "request cancelled"}
	errTaskTooLarge  = &jsonrpc.Error{Code: wire.CodeInternalError,
		Message: "result too large for a task: send the request without one"}
	errTooManyTasks = wire.Busy("too many tasks in progress")
)

func unknownTask() *jsonrpc.Error {
	return invalidParams("params.taskId: unknown task: tasks are kept for their ttl, at most the last %d of a session",
		maxTasks)
}

// taskCapability returns the capability of task-augmented requests for the declared capabilities,
// or nil if no such request is possible. Spec: basic/utilities/tasks#client-capabilities
// (2025-11-25)
func taskCapability(rev wire.Revision, declared []byte) []byte {
	if !rev.Has(wire.Tasks) {
		return nil
	}
	const before = `{"list":{},"cancel":{},"requests":{`
	dst := []byte(before)
	if hasCapability(declared, "elicitation") {
		dst = append(dst, `"elicitation":{"create":{}},`...)
	}
	if hasCapability(declared, "sampling") {
		dst = append(dst, `"sampling":{"createMessage":{}},`...)
	}
	if len(dst) == len(before) {
		return nil
	}
	return append(closeWith(dst, '}'), '}')
}

// supportsTasks reports whether the client declared tasks, for requests of the method if it is
// not empty.
func (c *Client) supportsTasks(method string) bool {
	path := []string{"tasks"}
	if method != "" {
		path = append(path, "requests")
		path = append(path, strings.Split(method, "/")...)
	}
	return c.rev.Has(wire.Tasks) && hasCapability(c.declared, path...)
}

// newTask creates a task for a request that asks for a task. Otherwise it returns nil. The caller
// must run the task. Spec: basic/utilities/tasks#task-support-and-handling, #creating-tasks
// (2025-11-25)
func (c *Client) newTask(ctx context.Context, m *jsonrpc.Message) (*clientTask, *jsonrpc.Error) {
	wanted, _ := jsonscan.Get(m.Params, "task")
	if kind := jsonscan.Kind(wanted); kind == 0 || kind == 'n' || !c.supportsTasks(m.Method) {
		return nil, nil
	}
	ttl, err := parseTaskTTL(wanted)
	if err != nil {
		return nil, err
	}
	task, err := c.tasks.add(peer.WithTask(peer.WithArrival(c.ctx, peer.ArrivalFrom(ctx)), peer.Task(ctx)), ttl)
	if err != nil {
		return nil, err
	}
	c.log.Debug("mcp: the server created a task for its request", "method", m.Method, "task", task.id, "ttl", ttl)
	return task, nil
}

// parseTaskTTL returns the ttl that the member "task" of a request asks for, within the limits.
// Spec: basic/utilities/tasks#ttl-and-resource-management (2025-11-25)
func parseTaskTTL(task []byte) (time.Duration, *jsonrpc.Error) {
	if jsonscan.Kind(task) != '{' {
		return 0, invalidParams("params.task: want an object")
	}
	raw, _ := jsonscan.Get(task, "ttl")
	switch jsonscan.Kind(raw) {
	case 0, 'n':
		return defaultTaskTTL, nil
	case '0':
		ms, err := strconv.ParseFloat(string(raw), 64)
		if err != nil && !math.IsInf(ms, 0) || ms < 0 {
			break
		}
		ms = min(max(ms, float64(leastTaskTTL.Milliseconds())), float64(maxTaskTTL.Milliseconds()))
		return time.Duration(ms) * time.Millisecond, nil
	}
	return 0, invalidParams("params.task.ttl: want a number of milliseconds")
}

// runTask serves the request of a task, unless it ended already.
func (c *Client) runTask(task *clientTask, m *jsonrpc.Message) {
	result, err := json.RawMessage(nil), errInternal
	if task.ctx.Err() == nil {
		result, err = c.inputResponse(task.ctx, m.Method, m.Params)
	}
	c.tasks.finish(task, result, err)
}

// serveTask serves the server's requests about tasks. Spec: basic/utilities/tasks#protocol-messages
// (2025-11-25)
func (c *Client) serveTask(ctx context.Context, method string, params []byte) (json.RawMessage, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	if method == wire.MethodTasksList {
		return c.tasks.list(params)
	}
	id, _ := jsonscan.Get(params, "taskId")
	if jsonscan.Kind(id) != '"' {
		return nil, invalidParams("params.taskId: want a string")
	}
	task := c.tasks.find(jsonscan.GetString(params, "taskId"))
	switch {
	case task == nil:
		return nil, unknownTask()
	case method == wire.MethodTasksCancel:
		return c.tasks.cancel(task, c.cancelled("the task was cancelled"))
	case method == wire.MethodTasksGet:
		return c.tasks.describe(task), nil
	}
	select {
	case <-task.done:
		return task.result, task.err
	case <-ctx.Done():
		return nil, errInternal // the request was cancelled
	}
}

// clientTasks are the tasks that the server created. The zero value is ready for use.
type clientTasks struct {
	mu      sync.Mutex // guards the fields below
	closed  bool
	all     []*clientTask // oldest first
	running int           // including cancelled and removed tasks whose handler still runs
	bytes   int           // of all results and errors
}

// A clientTask is a task-augmented request of the server.
type clientTask struct {
	id      string
	created time.Time
	ttl     time.Duration
	ctx     context.Context // of the handler
	stop    context.CancelCauseFunc
	expiry  *time.Timer
	done    chan struct{} // closed when there is an outcome

	// The fields below are guarded by the lock of clientTasks. They do not change once done is
	// closed.
	status, message string
	updated         time.Time
	result          json.RawMessage
	err             *jsonrpc.Error
}

// add creates a task. The error is a response for the server.
func (a *clientTasks) add(ctx context.Context, ttl time.Duration) (*clientTask, *jsonrpc.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, errInternal
	case a.running >= maxRunningTasks:
		return nil, errTooManyTasks
	}
	if len(a.all) >= maxTasks {
		a.forgetOldest() // at least one ended, since maxRunningTasks is smaller
	}
	now := time.Now()
	task := &clientTask{id: rand.Text(), created: now, updated: now, ttl: ttl, status: taskWorking,
		done: make(chan struct{})}
	task.ctx, task.stop = context.WithCancelCause(ctx)
	id := task.id // alone, since the runtime may keep stopped timers for a while
	task.expiry = time.AfterFunc(ttl, func() { a.expire(id) })
	a.all = append(a.all, task)
	a.running++
	return task, nil
}

// setOutcome ends a running task. The caller must hold the lock.
func (t *clientTask) setOutcome(status string, result json.RawMessage, err *jsonrpc.Error) {
	t.status, t.result, t.err, t.updated = status, result, err, time.Now()
	if status == taskFailed {
		t.message = strings.ToValidUTF8(err.Message[:min(len(err.Message), maxTaskMessage)], "")
	}
	close(t.done)
}

// finish sets the outcome of a task whose handler returned, unless the task ended already.
// Spec: basic/utilities/tasks#task-execution-errors, #result-retrieval (2025-11-25)
func (a *clientTasks) finish(t *clientTask, result json.RawMessage, err *jsonrpc.Error) {
	if err == nil {
		result = withRelatedTask(result, append(jsonscan.AppendQuote([]byte(`{"taskId":`), t.id), '}'))
	}
	defer t.stop(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	if t.status != taskWorking || a.closed {
		return
	}
	size := outcomeSize(result, err)
	if size > maxTaskBytes {
		result, err = nil, errTaskTooLarge
		size = outcomeSize(nil, err)
	}
	for a.bytes+size > maxTaskBytes {
		if !a.forgetOldest() {
			break // unreachable: only ended tasks hold bytes
		}
	}
	a.bytes += size
	if err != nil {
		t.setOutcome(taskFailed, nil, err)
		return
	}
	t.setOutcome(taskCompleted, result, nil)
}

func outcomeSize(result []byte, err *jsonrpc.Error) int {
	if err == nil {
		return len(result)
	}
	return len(err.Message) + len(err.Data)
}

// cancel cancels a task and returns its description. Spec: basic/utilities/tasks#task-cancellation
// (2025-11-25)
func (a *clientTasks) cancel(t *clientTask, cause error) (json.RawMessage, *jsonrpc.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.status != taskWorking {
		return nil, invalidParams("params.taskId: the task has ended already: it is %s", t.status)
	}
	t.setOutcome(taskCancelled, nil, errTaskCancelled)
	a.bytes += outcomeSize(nil, t.err)
	t.stop(cause)
	return t.append(nil), nil
}

func (a *clientTasks) find(id string) *clientTask {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.get(id)
}

// get is find for a caller that holds the lock.
func (a *clientTasks) get(id string) *clientTask {
	at := slices.IndexFunc(a.all, func(t *clientTask) bool { return t.id == id })
	if at < 0 {
		return nil
	}
	return a.all[at]
}

func (a *clientTasks) describe(t *clientTask) json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.append(nil)
}

// list returns all tasks on a single page, so there are no valid cursors. Spec:
// basic/utilities/tasks#task-listing (2025-11-25)
func (a *clientTasks) list(params []byte) (json.RawMessage, *jsonrpc.Error) {
	if cursor, _ := jsonscan.Get(params, "cursor"); cursor != nil && jsonscan.Kind(cursor) != 'n' {
		return nil, invalidParams("params.cursor: unknown cursor: a list of tasks has one page")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	dst := []byte(`{"tasks":[`)
	for _, t := range a.all {
		dst = append(t.append(dst), ',')
	}
	return append(closeWith(dst, ']'), '}'), nil
}

// append appends the description of the task. The caller must hold the lock. Spec:
// basic/utilities/tasks#task (2025-11-25)
func (t *clientTask) append(dst []byte) []byte {
	dst = jsonscan.AppendQuote(append(dst, `{"taskId":`...), t.id)
	dst = append(append(append(dst, `,"status":"`...), t.status...), '"')
	if t.message != "" {
		dst = jsonscan.AppendQuote(append(dst, `,"statusMessage":`...), t.message)
	}
	dst = t.created.UTC().AppendFormat(append(dst, `,"createdAt":"`...), taskTimeFormat)
	dst = t.updated.UTC().AppendFormat(append(dst, `","lastUpdatedAt":"`...), taskTimeFormat)
	dst = strconv.AppendInt(append(dst, `","ttl":`...), t.ttl.Milliseconds(), 10)
	dst = strconv.AppendInt(append(dst, `,"pollInterval":`...), taskPollInterval.Milliseconds(), 10)
	return append(dst, '}')
}

// drop removes a task that the server does not know of and that was not run.
func (a *clientTasks) drop(t *clientTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	a.forget(t, context.Canceled)
}

func (a *clientTasks) expire(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.get(id); t != nil {
		a.forget(t, errTaskExpired)
	}
}

// forgetOldest removes the oldest task that ended. It returns false if no task ended. The caller
// must hold the lock.
func (a *clientTasks) forgetOldest() bool {
	at := slices.IndexFunc(a.all, func(t *clientTask) bool { return t.status != taskWorking })
	if at < 0 {
		return false
	}
	a.forget(a.all[at], nil)
	return true
}

// forget removes a task, if it is still there. It stops the handler and fails requests for the
// result. The caller must hold the lock.
func (a *clientTasks) forget(t *clientTask, cause error) {
	at := slices.Index(a.all, t)
	if at < 0 {
		return
	}
	a.all = slices.Delete(a.all, at, at+1)
	t.expiry.Stop()
	if t.status == taskWorking {
		t.setOutcome(taskCancelled, nil, unknownTask())
		t.stop(cause)
		return
	}
	a.bytes -= outcomeSize(t.result, t.err)
}

func (a *clientTasks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for len(a.all) > 0 {
		a.forget(a.all[0], ErrEnded)
	}
}
