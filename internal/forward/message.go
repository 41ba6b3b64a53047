package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// maxKeptLogs limits the log messages that are kept while a client is asked.
const maxKeptLogs = 64 << 10

// kept are notifications for the next request of the client of a suspended call.
type kept struct {
	progress json.RawMessage // the last one
	logs     []json.RawMessage
	bytes    int // of logs
}

// attach sets the request of the client that receives the notifications of the call, and sends it
// the messages that were kept.
func (c *Call) attach(ctx context.Context, r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.req = ctx, r
	for _, params := range c.kept.logs {
		c.notify(wire.NotificationMessage, params)
	}
	if c.kept.progress != nil {
		c.notify(wire.NotificationProgress, c.kept.progress)
	}
	c.kept = kept{}
}

func (c *Call) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.req = nil, nil
}

// Receive sends the client a notification of the server, under the progress token of the client. It
// keeps the last progress and some log messages while the call is suspended. It drops what the
// client did not ask for.
func (c *Call) Receive(method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.req != nil:
		c.notify(method, params)
	case method == wire.NotificationProgress:
		c.kept.progress = bytes.Clone(params)
	case method == wire.NotificationMessage && c.kept.bytes+len(params) <= maxKeptLogs:
		c.kept.logs = append(c.kept.logs, bytes.Clone(params))
		c.kept.bytes += len(params)
	}
}

// notify sends the client a notification. The lock of the call is held.
func (c *Call) notify(method string, params json.RawMessage) {
	if c.req.Notify == nil {
		return
	}
	if method == wire.NotificationProgress {
		if c.req.Token == nil {
			return
		}
		b := append([]byte(`{"progressToken":`), c.req.Token...)
		params = append(append(b, Members(params, "progressToken")...), '}')
	}
	_ = c.req.Notify(c.ctx, method, params) // fails if the client is gone, which ends the context
}

// Log passes a log message of the server to a client, and reports whether it did. A message belongs
// to a call if it arrives on the stream of the call, or if it belongs to a task whose result the
// call requests. Any other message goes to the oldest call that asked for its level, unless several
// principals made calls.
func (t *Table) Log(ctx context.Context, params json.RawMessage) bool {
	text := jsonscan.GetString(params, "level")
	severity, _ := wire.LogSeverity(text)
	wants := func(c *Call) bool {
		least, wanted := wire.LogSeverity(c.level)
		return wanted && severity >= least
	}
	c, exact := callOf(ctx)
	if !exact {
		c = t.receiverOf(ctx, params, wants)
	}
	return c != nil && wants(c) && c.Queue.Put(ctx, wire.NotificationMessage, params) == nil
}

// receiverOf returns the call that receives a log message outside the streams of calls, or nil.
func (t *Table) receiverOf(ctx context.Context, params []byte, wants func(*Call) bool) *Call {
	meta, _ := jsonscan.Get(params, "_meta")
	related, _ := jsonscan.Get(meta, wire.MetaRelatedTask)
	task := jsonscan.GetString(related, "taskId")
	t.mu.Lock()
	defer t.mu.Unlock()
	switch i := slices.IndexFunc(t.calls, wants); {
	case task != "":
		return t.ofTask(task)
	case i < 0:
	case t.several:
		t.warn(ctx, "mcp: a log message of the server was delivered to no client: several users have used the "+
			"connection, and nothing relates the message to a request; "+connectEach)
	default:
		return t.calls[i]
	}
	return nil
}

// Members returns the members of an object except one, each after a comma.
func Members(object []byte, without string) []byte {
	return jsonscan.AppendMembers(make([]byte, 0, len(object)), object, func(key string) bool { return key != without })
}

// hostMeta is the prefix of the members of `_meta` that hosts set in results and questions. In a
// request of a client they could only pretend to be of a host.
const hostMeta = "dev.patchbay/"

// protocolMeta is the prefix that the protocol reserves for its members of `_meta`.
const protocolMeta = "io.modelcontextprotocol/"

// Meta returns the members of the `_meta` of a request that are forwarded, except the member
// without. It returns nil if there are no such members. Forwarded are the trace context, if it uses
// the format of the W3C, and the members of extensions that capabilities, the client's, declare. A
// member belongs to an extension if their names begin with the same prefix.
func Meta(meta, capabilities []byte, without string) map[string]any {
	var kept map[string]any
	for key, value := range jsonscan.Members(meta) {
		if bytes.HasPrefix(key, []byte(protocolMeta)) {
			continue
		}
		s, folded := string(key), fold.Key(key) // a lenient server may ignore the case of a prefix
		if strings.HasPrefix(folded, protocolMeta) {
			continue
		}
		switch s {
		case without:
			continue
		case wire.MetaTraceParent, wire.MetaTraceState, wire.MetaBaggage:
		default:
			if strings.HasPrefix(folded, hostMeta) || wire.Latest().ReservesMeta(folded) ||
				!isDeclared(capabilities, s) {
				continue
			}
		}
		if wire.ValidMetaKey(s) && wire.ValidTraceContext(s, value) {
			if kept == nil {
				kept = map[string]any{}
			}
			kept[s] = json.RawMessage(bytes.Clone(value))
		}
	}
	return kept
}

// isDeclared reports whether a key of `_meta` begins with the prefix of a declared extension.
func isDeclared(capabilities []byte, key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	extensions, _ := jsonscan.Get(capabilities, "extensions")
	for id := range jsonscan.Members(extensions) {
		if idPrefix, _, found := strings.Cut(string(id), "/"); ok && found && idPrefix == prefix {
			return true
		}
	}
	return false
}
