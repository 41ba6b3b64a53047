package mcphttp

import "container/list"

// Limits of the output that clients have not read, in bytes.
const (
	maxUnread         = 256 << 20 // in total
	maxUnreadOfCaller = 64 << 20
	// minUnread is the size up to which a response or a write of a stream is not counted. There are
	// no more of them than requests in progress and streams, which are limited too.
	minUnread = 32 << 10
)

// unreadOutput is the output of a handler that its clients have not read: responses, events that
// are being written, and queues. If it exceeds a limit of its quota, the oldest output is cut,
// because a client that reads does not hold the oldest output for long. If it exceeds the limit of
// all callers, that of anonymous callers is cut first.
type unreadOutput struct {
	quota   *quota    // its mutex guards the fields below and all outputs
	outputs list.List // of *output, oldest first
}

// An output is the unread output of a response, stream or queue.
type output struct {
	caller  caller
	cut     func() // ends the output; must not block; called with the quota's lock
	bytes   int64
	element *list.Element // nil without bytes
	isOver  bool          // it was removed or cut
}

// add adds n bytes to an output; n may be negative. It cuts other outputs if a limit is exceeded.
func (u *unreadOutput) add(o *output, n int64) {
	u.quota.mu.Lock()
	defer u.quota.mu.Unlock()
	if o.isOver {
		return
	}
	u.grow(o, n)
	if n > 0 {
		u.enforce(o)
	}
}

// remove ends the accounting of an output, which is not cut afterwards.
func (u *unreadOutput) remove(o *output) {
	u.quota.mu.Lock()
	defer u.quota.mu.Unlock()
	u.grow(o, -o.bytes)
	o.isOver = true
}

// grow changes the size of an output. The caller of grow holds the lock.
func (u *unreadOutput) grow(o *output, n int64) {
	o.bytes += n
	u.quota.add(o.caller, n)
	switch {
	case o.bytes > 0 && o.element == nil:
		o.element = u.outputs.PushBack(o)
	case o.bytes == 0 && o.element != nil:
		u.outputs.Remove(o.element)
		o.element = nil
	case n < 0 && o.element != nil:
		u.outputs.MoveToBack(o.element) // its client reads
	}
}

// enforce cuts the oldest outputs until the limits that apply to o are met, or only o is left. The
// caller of enforce holds the lock.
func (u *unreadOutput) enforce(o *output) {
	q := u.quota
	for c := o.caller; c.key != "" && q.byCaller[c] > q.perCaller; {
		if !u.cutOldest(o, func(other caller) bool { return other == c }) {
			break
		}
	}
	for o.caller.isAnonymous && q.anonymous > anonymousShare(q.total) {
		if !u.cutOldest(o, isAnonymous) {
			break
		}
	}
	for q.taken > q.total && u.cutOldest(o, isAnonymous) {
	}
	// An anonymous caller never causes a cut of a principal's output: at worst its own output
	// exceeds the limit.
	for !o.caller.isAnonymous && q.taken > q.total && u.cutOldest(o, func(caller) bool { return true }) {
	}
}

func isAnonymous(c caller) bool { return c.isAnonymous }

// cutOldest cuts the oldest output of a matching caller except the given output, and reports
// whether there was such an output.
func (u *unreadOutput) cutOldest(except *output, match func(caller) bool) bool {
	for e := u.outputs.Front(); e != nil; e = e.Next() {
		if o := e.Value.(*output); o != except && match(o.caller) {
			u.grow(o, -o.bytes)
			o.isOver = true
			o.cut()
			return true
		}
	}
	return false
}
