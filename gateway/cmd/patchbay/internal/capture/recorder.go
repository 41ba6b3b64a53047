package capture

import (
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A recorder records the requests of callers from the records of a host.
type recorder struct {
	ring *Ring
	next event.Recorder // nil if the records are not stored

	mu    sync.Mutex
	calls map[string]uint64 // exchanges in progress, by the call of their records; guarded by mu
}

// Recorder returns a recorder for a host that passes its records on to next, which may be nil. It
// records each request of a caller as an exchange of the hop downstream.
func (r *Ring) Recorder(next event.Recorder) event.Recorder {
	return &recorder{ring: r, next: next, calls: map[string]uint64{}}
}

// Unwrap returns the recorder whose records a host counts.
func (r *recorder) Unwrap() event.Recorder { return r.next }

// Record takes a record.
func (r *recorder) Record(record *event.Record) error {
	switch record.Event {
	case event.Intent, event.Answer:
		id := r.exchange(record)
		if record.Event == event.Answer {
			r.ring.update(id, func(x *slot) { x.Rounds, x.Status = x.Rounds+1, "" })
		}
		r.ring.causes.put(id, record)
	case event.Question:
		id := r.exchange(record)
		r.add(id, record, false, &jsonrpc.Message{ID: messageID(id), Result: record.Result})
		r.ring.update(id, func(x *slot) { x.Status = StatusQuestion })
	case event.End, event.Refused:
		r.end(record)
	case event.Login:
		id := r.ring.begin(&Exchange{Hop: OAuth, Server: record.Server, Caller: callerName(record.Caller),
			Method: "login", Queued: record.Start})
		r.ring.add(id, Frame{Kind: Decision}, []byte(record.Mask(string(record.Detail))), nil)
		r.ring.end(id, status(record))
	case event.Drift, event.Config, event.Admin:
	}
	if r.next == nil {
		return nil
	}
	return r.next.Record(record)
}

// exchange returns the exchange of a record. It begins with the first record of a call, and the last
// record ends the call.
func (r *recorder) exchange(record *event.Record) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, isLast := r.calls[record.Call], record.Event == event.End || record.Event == event.Refused
	if isLast {
		delete(r.calls, record.Call)
	}
	switch {
	case id == 0:
		x := Exchange{Hop: Downstream, Server: record.Server, Caller: callerName(record.Caller),
			Method: record.Method, Target: record.Public, Name: record.Target, Queued: record.Start,
			Sent: max(time.Since(record.Start), 1)}
		keeps := r.ring.Keeps()
		if !keeps {
			x.Frames, x.Bytes = 1, int64(len(record.Arguments)+len(record.Answers))
		}
		if id = r.ring.begin(&x); !isLast && len(r.calls) < maxPending {
			r.calls[record.Call] = id
		}
		if keeps {
			r.request(id, record)
		}
	case record.Event == event.Answer:
		r.request(id, record)
	}
	return id
}

// paramsRoom is the space for the member names of params, in bytes.
const paramsRoom = 64

// request records the request of a caller, as far as its record contains it.
func (r *recorder) request(id uint64, record *event.Record) {
	if !r.ring.Keeps() {
		r.ring.count(id, len(record.Arguments)+len(record.Answers))
		return
	}
	r.ring.mask.learn(record.Server, record.Definition)
	key := "name"
	if strings.HasPrefix(record.Method, "resources/") {
		key = "uri"
	}
	params := make([]byte, 0, len(record.Public)+len(record.Arguments)+len(record.Answers)+paramsRoom)
	params = rawjson.AppendQuote(append(append(append(params, `{"`...), key...), `":`...), record.Public)
	if len(record.Arguments) > 0 {
		params = append(append(params, `,"arguments":`...), record.Arguments...)
	}
	if len(record.Answers) > 0 {
		params = append(append(params, `,"inputResponses":`...), record.Answers...)
	}
	r.add(id, record, true, &jsonrpc.Message{ID: messageID(id), Method: record.Method, Params: append(params, '}')})
	if decision := record.Rule + record.Channel + record.Approver; decision != "" {
		text := "rule " + record.Rule + "\nchannel " + record.Channel + "\napprover " + record.Approver
		r.ring.add(id, Frame{Kind: Decision}, []byte(text), nil)
	}
}

// end ends the exchange of a call.
func (r *recorder) end(record *event.Record) {
	id, keeps := r.exchange(record), r.ring.Keeps()
	r.ring.causes.remove(id)
	rpc, isRPC := errors.AsType[*mcp.Error](record.Err)
	switch {
	case !keeps:
	case record.Err == nil || isRPC:
		r.add(id, record, false, &jsonrpc.Message{ID: messageID(id), Result: record.Result, Error: rpc})
	default:
		r.ring.add(id, Frame{Kind: Decision}, []byte(record.Mask(record.Err.Error())), nil)
	}
	word, ended := status(record), record.Start.Add(record.Duration)
	r.ring.update(id, func(x *slot) {
		if !keeps {
			x.count(len(record.Result))
		}
		x.end(word, ended)
	})
}

func (r *recorder) add(id uint64, record *event.Record, sent bool, m *jsonrpc.Message) {
	if !r.ring.Keeps() {
		r.ring.count(id, len(m.Result))
		return
	}
	var secret names
	if record.Event != event.Question {
		secret = r.ring.mask.of(record.Server)
	}
	r.ring.write(id, Frame{Kind: Message, Sent: sent}, secret, func(to []byte) []byte {
		if to = jsonrpc.Append(to, m); r.ring.mask.secrets.Load() == nil {
			return append(to[:0], record.Mask(string(to))...)
		}
		return to // the ring knows all secrets
	})
}

// status returns the status of a record that ends an exchange. The codes of a host are words.
func status(r *event.Record) string {
	word := "error "
	if r.Event == event.Refused {
		word = StatusRefused + " "
	}
	if e, ok := errors.AsType[*hosterr.Error](r.Err); ok {
		return word + string(e.Code)
	}
	if e, ok := errors.AsType[*mcp.Error](r.Err); ok {
		return word + strconv.Itoa(e.Code)
	}
	if r.Err != nil {
		return StatusFailed
	}
	return statusOf(r.Method, r.Result, nil)
}

// messageID returns the id of messages that are made of records, which contain no id.
func messageID(id uint64) jsonrpc.ID { return jsonrpc.IntID(int64(id)) } //nolint:gosec // a count

func callerName(c *policy.Caller) string {
	if c == nil || c.Principal == nil {
		return ""
	}
	return c.Principal.Subject
}

// causes match requests to servers with the requests of callers for which a host is about to send
// them. It is safe for concurrent use.
type causes struct {
	mu      sync.Mutex
	waiting []cause // the oldest first; guarded by mu
}

// A cause is a request as far as its record contains it, and its exchange of the hop downstream.
type cause struct {
	server, method, target string
	arguments              uint64 // a hash
	id                     uint64
}

var seed = maphash.MakeSeed()

func (c *causes) put(id uint64, r *event.Record) {
	w := cause{r.Server, r.Method, r.Target, maphash.Bytes(seed, r.Arguments), id}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) < maxPending {
		c.waiting = append(c.waiting, w)
	}
}

// take removes and returns the exchange that caused a request, or 0.
func (c *causes) take(server, method string, p *parts) uint64 {
	arguments := maphash.Bytes(seed, p.arguments)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.waiting {
		w := &c.waiting[i]
		if w.arguments == arguments && w.target == p.target && w.server == server && w.method == method {
			id := w.id
			c.waiting = slices.Delete(c.waiting, i, i+1)
			return id
		}
	}
	return 0
}

// remove forgets a request that ended, perhaps without being sent.
func (c *causes) remove(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w cause) bool { return w.id == id })
}
