package task

import (
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxKept limits the kept results, and maxKeptBytes their size. Above a limit, the host forgets
	// the oldest result of the principal whose results cost the most.
	maxKept      = 1000
	maxKeptBytes = 64 << 20
	// keptTTL is how long a result is kept unless the caller asks for a shorter time.
	keptTTL    = time.Hour
	minKeptTTL = time.Second
)

// keptTasks holds results of calls that a caller of revision 2025-11-25 made as tasks and a server
// of the extension answered at once. The caller must fetch them with tasks/result. They end with
// the process. The lock of the table guards it.
type keptTasks struct {
	all   []*keptTask
	bytes int
}

type keptTask struct {
	id, handle, principal string
	created               time.Time
	ttl                   time.Duration
	result                mcp.RawResult
}

// addKept keeps a result.
func (c *Caller) addKept(k *keptTask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.kept
	a.all = append(a.all, k)
	a.bytes += len(k.result)
	a.expire()
	for len(a.all) > maxKept || a.bytes > maxKeptBytes && len(a.all) > 1 {
		n := a.oldestOfLargest()
		a.bytes -= len(a.all[n].result)
		a.all = slices.Delete(a.all, n, n+1)
	}
}

// keptCost is added to the size of each kept result, so that the limits apply to many small results
// too.
const keptCost = 1 << 10

// oldestOfLargest returns the index of the oldest result of the principal whose results cost the
// most, so that a principal cannot remove the results of others.
func (a *keptTasks) oldestOfLargest() int {
	costs := map[string]int{}
	largest := a.all[0].principal
	for _, k := range a.all {
		if costs[k.principal] += keptCost + len(k.result); costs[k.principal] > costs[largest] {
			largest = k.principal
		}
	}
	return slices.IndexFunc(a.all, func(k *keptTask) bool { return k.principal == largest })
}

// expire removes results whose time is over.
func (a *keptTasks) expire() {
	now := time.Now()
	a.all = slices.DeleteFunc(a.all, func(k *keptTask) bool {
		over := now.Sub(k.created) > k.ttl
		if over {
			a.bytes -= len(k.result)
		}
		return over
	})
}

// keptResults returns the results of the caller: the result with the given ID, or all if id is empty.
func (c *Caller) keptResults(id string) (all []*keptTask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.expire()
	for _, k := range c.kept.all {
		if k.principal == c.Principal && (id == "" || k.id == id) {
			all = append(all, k)
		}
	}
	return all
}

// serveKept serves a request about a kept result.
func (c *Caller) serveKept(req *mcp.Request, t *Task) (mcp.Result, error) {
	all := c.keptResults(t.Kept)
	if len(all) == 0 || !coreTasks(req.Revision()) {
		return nil, ErrUnknown
	}
	k := all[0]
	switch req.Method {
	case MethodResult:
		return mcp.RawResult(relate(k.result, t.Handle)), nil
	case MethodCancel:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: the task is %s already", k.status())
	}
	b := append([]byte(`{"resultType":"complete"`), k.members(k.status())...)
	return mcp.RawResult(append(b, '}')), nil
}

func (k *keptTask) status() string {
	if isToolError([]byte(k.result)) {
		return taskFailed
	}
	return taskCompleted
}

// members returns the members of the task, each after a comma.
func (k *keptTask) members(status string) []byte {
	b := jsonscan.AppendQuote([]byte(`,"taskId":`), k.handle)
	b = jsonscan.AppendQuote(append(b, `,"status":`...), status)
	at := k.created.UTC().Format("2006-01-02T15:04:05.000Z")
	b = jsonscan.AppendQuote(append(b, `,"createdAt":`...), at)
	b = jsonscan.AppendQuote(append(b, `,"lastUpdatedAt":`...), at)
	b = strconv.AppendInt(append(b, `,"ttl":`...), k.ttl.Milliseconds(), 10)
	return append(b, `,"pollInterval":1000`...)
}
