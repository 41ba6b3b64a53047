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
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A server of the last revision with sessions may ask for an answer that it fetches later: its inputRequest has a member
// "task". It is told a task at once, the inputRequest is put to whoever hasResponseMember questions, and the server looks after the task
// with the methods that clients have for the tasks of servers.

const (
	// maxRunningTasks is the number of tasks whose questions are being answered. It leaves half of maxServerRequests to a server
	// that waits for the results of all of them, so that it can still call them off.
	maxRunningTasks = maxServerRequests / 2
	// maxTasks is the number of tasks that a session keeps, with those that have ended. A list of them is one message.
	// Where there would be more, the oldest that have ended are forgotten before their time.
	maxTasks = 128
	// maxTaskBytes bounds what is kept of results and errors until they are fetched, in the same way. What people answer is
	// short, and what models answer is seldom as large as a picture.
	maxTaskBytes = 16 << 20
	// maxTaskMessage bounds what a list says of a failure, in bytes. The error itself says all.
	maxTaskMessage = 256

	// leastTaskTTL is the shortest time for which a task is kept: a server needs one to ask for its result.
	leastTaskTTL = time.Second
	// defaultTaskTTL is that of a task whose server wants no other. It is longer than people are waited for.
	defaultTaskTTL = time.Hour
	// maxTaskTTL is the longest one. No inputRequest of yesterday waits for an answer.
	maxTaskTTL = 24 * time.Hour
	// taskPollInterval is how often a server is to ask for the status of a task: people are not faster.
	taskPollInterval = time.Second
	// taskTimeFormat is that of ISO 8601, in UTC and to the millisecond.
	taskTimeFormat = "2006-01-02T15:04:05.000Z"
)

// The statuses of tasks that the client has. None requires input: whoever hasResponseMember asks the server nothing.
//
// Spec: basic/utilities/tasks#task-status (2025-11-25)
const (
	taskWorking   = "working"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

var (
	errTaskExpired = errors.New("the time of the question's task is over")

	errTaskCancelled = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "request cancelled"}
	errTaskTooLarge  = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer is too large to be kept: ask for it without a task"}
	errTooManyTasks  = &jsonrpc.Error{Code: codeBusy, Message: "too many tasks in progress"}
)

func unknownTask() *jsonrpc.Error {
	return invalidParams("params.taskId: there is no such task; a task is kept for its ttl, and the last %d of a session at most", maxTasks)
}

// taskCapability returns the capability to take questions as tasks, of those that declared promises to answer, or nil if there
// are none.
//
// Spec: basic/utilities/tasks#client-capabilities (2025-11-25)
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

// takesTasks reports whether the server may make tasks at all; with a method, whether of those questions.
func (c *Client) supportsTasks(method string) bool {
	path := []string{"tasks"}
	if method != "" {
		path = append(path, "requests")
		path = append(path, strings.Split(method, "/")...)
	}
	return c.rev.Has(wire.Tasks) && hasCapability(c.declared, path...)
}

// takeTask makes a task of a inputRequest that wants to be one, or gives nil. Whoever gets a task works on it.
//
// Spec: basic/utilities/tasks#task-support-and-handling, #creating-tasks (2025-11-25)
func (c *Client) newTask(m *jsonrpc.Message) (*clientTask, *jsonrpc.Error) {
	wanted, _ := jsonscan.Get(m.Params, "task")
	if kind := jsonscan.Kind(wanted); kind == 0 || kind == 'n' || !c.supportsTasks(m.Method) {
		return nil, nil
	}
	ttl, err := parseTaskTTL(wanted)
	if err != nil {
		return nil, err
	}
	task, err := c.tasks.add(c.ctx, ttl)
	if err != nil {
		return nil, err
	}
	c.log.Debug("mcp: the server makes a task of its question", "method", m.Method, "task", task.id, "ttl", ttl)
	return task, nil
}

// parseTaskTTL returns the time to live that the member "task" of a inputRequest asks for, within what is given.
//
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

// workOn has the inputRequest of a task answered, unless nobody wants to know any more.
func (c *Client) runTask(task *clientTask, m *jsonrpc.Message) {
	result, err := json.RawMessage(nil), errInternal
	if task.ctx.Err() == nil {
		result, err = c.inputResponse(task.ctx, m.Method, m.Params)
	}
	c.tasks.finish(task, result, err)
}

// serveTask hasResponseMember the server's requests about tasks.
//
// Spec: basic/utilities/tasks#protocol-messages (2025-11-25)
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
	task := c.tasks.find(text(params, "taskId"))
	switch {
	case task == nil:
		return nil, unknownTask()
	case method == wire.MethodTasksCancel:
		return c.tasks.cancel(task, c.cancelled("the task of the question was cancelled"))
	case method == wire.MethodTasksGet:
		return c.tasks.describe(task), nil
	}
	select {
	case <-task.done:
		return task.result, task.err
	case <-ctx.Done():
		return nil, errInternal // which nobody is told
	}
}

// clientTasks are the tasks that the server has made of its questions. The zero value is empty and ready.
type clientTasks struct {
	mu      sync.Mutex // guards the fields below
	closed  bool
	all     []*clientTask // the oldest first
	running int           // those that are being answered, with cancelled and forgotten ones
	bytes   int           // of the results and errors of all
}

// An clientTask is a inputRequest whose answer the server fetches.
type clientTask struct {
	id      string
	created time.Time
	ttl     time.Duration
	ctx     context.Context // of whoever hasResponseMember
	stop    context.CancelCauseFunc
	expiry  *time.Timer
	done    chan struct{} // closed when there is an outcome

	// The fields below are guarded by the lock of the tasks. They do not change once done is closed.
	status, message string
	updated         time.Time
	result          json.RawMessage
	err             *jsonrpc.Error
}

// add makes a task. The error is one to answer with.
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
		a.forgetOldest() // there is one that has ended: there are more tasks than can be at work
	}
	now := time.Now()
	task := &clientTask{id: rand.Text(), created: now, updated: now, ttl: ttl, status: taskWorking, done: make(chan struct{})}
	task.ctx, task.stop = context.WithCancelCause(ctx)
	id := task.id // and no more: the runtime keeps timers for a while that were stopped
	task.expiry = time.AfterFunc(ttl, func() { a.expire(id) })
	a.all = append(a.all, task)
	a.running++
	return task, nil
}

// settle returns a task that has none its outcome. The caller holds the lock.
func (t *clientTask) setOutcome(status string, result json.RawMessage, err *jsonrpc.Error) {
	t.status, t.result, t.err, t.updated = status, result, err, time.Now()
	if status == taskFailed {
		t.message = strings.ToValidUTF8(err.Message[:min(len(err.Message), maxTaskMessage)], "")
	}
	close(t.done)
}

// answered ends the work on a task. Its outcome is that of the inputRequest, unless it has one already.
//
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
			break // never: all bytes are those of tasks that have ended
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

// cancel calls a task off for good, and gives what it is then.
//
// Spec: basic/utilities/tasks#task-cancellation (2025-11-25)
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

// find returns nil for an id that no task has.
func (a *clientTasks) find(id string) *clientTask {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.get(id)
}

// named is find for a caller that holds the lock.
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

// list returns all tasks at once: there are few. So it never gave a cursor that could come back.
//
// Spec: basic/utilities/tasks#task-listing (2025-11-25)
func (a *clientTasks) list(params []byte) (json.RawMessage, *jsonrpc.Error) {
	if cursor, _ := jsonscan.Get(params, "cursor"); cursor != nil && jsonscan.Kind(cursor) != 'n' {
		return nil, invalidParams("params.cursor: there is none: a list of tasks has one page")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	dst := []byte(`{"tasks":[`)
	for _, t := range a.all {
		dst = append(t.append(dst), ',')
	}
	return append(closeWith(dst, ']'), '}'), nil
}

// append appends the task as the server sees it. The caller holds the lock.
//
// Spec: basic/utilities/tasks#task (2025-11-25)
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

// drop forgets a task that the server was never told, and whose inputRequest is put to nobody.
func (a *clientTasks) drop(t *clientTask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	a.forget(t, context.Canceled)
}

// expire forgets a task whose time is over, whatever has become of it.
func (a *clientTasks) expire(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.get(id); t != nil {
		a.forget(t, errTaskExpired)
	}
}

// forgetOldest forgets the task that was made first of those that have ended. It reports false if none has. The caller
// holds the lock.
func (a *clientTasks) forgetOldest() bool {
	at := slices.IndexFunc(a.all, func(t *clientTask) bool { return t.status != taskWorking })
	if at < 0 {
		return false
	}
	a.forget(a.all[at], nil)
	return true
}

// forget takes a task out, if it is still there. Whoever works on it or waits for it stops. The caller holds the lock.
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

// close forgets all tasks, and takes no more.
func (a *clientTasks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for len(a.all) > 0 {
		a.forget(a.all[0], ErrEnded)
	}
}
