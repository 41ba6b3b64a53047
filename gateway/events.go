package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxEvents bounds the events that are kept for readers that connect again, and maxEventBytes
	// their size: they are a few minutes of a busy gateway.
	maxEvents     = 4096
	maxEventBytes = 4 << 20
	// maxEventText limits each text of an event, in bytes, and maxEventNames its names.
	maxEventText  = 512
	maxEventNames = 100
	// maxCallers limits the callers that are remembered; the caller that was idle the longest is
	// removed.
	maxCallers = 1000
)

// Types of events.
const (
	eventServer    = "server"    // the state of a server changed
	eventCatalogue = "catalogue" // a list of a server changed
	eventDrift     = "drift"     // definitions are quarantined
	eventPending   = "pending"   // a request waits for approval
	eventDecided   = "decided"   // a request does not wait for approval any more
	eventCall      = "call"      // a request ended or was refused
	eventQuestion  = "question"  // a server or the gateway asks the caller of a request
	eventConfig    = "config"    // the configuration was read again
	eventAudit     = "audit"     // a login, or an action of an operator
	eventExchange  = "exchange"  // a recorded exchange ended; only with wire=1
	eventGap       = "gap"       // events were lost
)

var eventTypes = []string{eventServer, eventCatalogue, eventDrift, eventPending, eventDecided, eventCall, eventQuestion,
	eventConfig, eventAudit, eventExchange, eventGap}

// An adminEvent is the data of an event.
type adminEvent struct {
	Type     string          `json:"type" jsonschema:"such as call; the parameter types has all"`
	Time     time.Time       `json:"time"`
	Server   string          `json:"server,omitzero"`
	Instance string          `json:"instance,omitzero" jsonschema:"of the server"`
	State    string          `json:"state,omitzero" jsonschema:"of the instance"`
	Error    string          `json:"error,omitzero"`
	Code     string          `json:"code,omitzero" jsonschema:"of the error"`
	Request  string          `json:"request,omitzero" jsonschema:"id of a request for approval"`
	Answer   string          `json:"answer,omitzero" jsonschema:"to the request for approval; absent if there was none"`
	Call     string          `json:"call,omitzero" jsonschema:"the same for all events of a request"`
	Method   string          `json:"method,omitzero"`
	Target   string          `json:"target,omitzero" jsonschema:"name or URI that the server uses"`
	Caller   string          `json:"caller,omitzero" jsonschema:"subject and issuer; absent for the local user"`
	Client   string          `json:"client,omitzero" jsonschema:"that a question is for; not verified"`
	Approver string          `json:"approver,omitzero" jsonschema:"who answered a request for approval"`
	Outcome  string          `json:"outcome,omitzero" jsonschema:"of a call: ok, error or refused"`
	Rule     string          `json:"rule,omitzero" jsonschema:"that has decided"`
	Millis   float64         `json:"ms,omitzero" jsonschema:"how long the call took"`
	Names    []string        `json:"names,omitzero" jsonschema:"of definitions"`
	Missed   uint64          `json:"missed,omitzero" jsonschema:"number of events that were lost; 0 if it is unknown"`
	Detail   json.RawMessage `json:"detail,omitzero"`
}

// size returns about how much memory an event uses.
func (e *adminEvent) size() int {
	n := 256 + len(e.Error) + len(e.Target) + len(e.Caller) + len(e.Detail)
	for _, name := range e.Names {
		n += len(name) + 16
	}
	return n
}

// An EventLog keeps the last events of a host for [AdminOptions]. It is safe for concurrent use.
type EventLog struct {
	boot string // part of each ID: IDs of another process are unknown

	mu      sync.Mutex // guards the fields below
	events  eventRing
	changed chan struct{} // closed with the next event; nil while no reader waits
	callers map[callerKey]*callerEntry
	hits    ruleHits
}

// A callerKey identifies a caller.
type callerKey struct{ issuer, subject, clientID, profile string }

func keyOf(c *policy.Caller) callerKey {
	k := callerKey{profile: c.Profile}
	if p := c.Principal; p != nil {
		k.issuer, k.subject, k.clientID = p.Issuer, p.Subject, p.ClientID
	}
	return k
}

// NewEventLog returns an EventLog without events.
func NewEventLog() *EventLog {
	return &EventLog{boot: strings.ToLower(rand.Text()[:10]), events: eventRing{first: 1},
		callers: map[callerKey]*callerEntry{}}
}

// Recorder returns a Recorder for [host.Options] that adds the events of requests to the log. It
// passes each record to next, which may be nil.
func (l *EventLog) Recorder(next event.Recorder) event.Recorder { return &eventRecorder{l, next} }

type eventRecorder struct {
	log  *EventLog
	next event.Recorder
}

// Record takes a record.
func (r *eventRecorder) Record(record *event.Record) error {
	r.log.record(record)
	if r.next == nil {
		return nil
	}
	return r.next.Record(record)
}

// Unwrap returns the recorder whose records [host.Stats] counts.
func (r *eventRecorder) Unwrap() event.Recorder { return r.next }

// record adds the event of a record, if the record describes an event.
func (l *EventLog) record(r *event.Record) {
	e := adminEvent{Time: r.Start, Server: r.Server, Call: r.Call, Method: cut(r.Method, maxEventText),
		Target: cut(cmp.Or(r.Target, r.Public), maxEventText), Rule: r.Rule,
		Caller: cut(callerName(r.Caller), maxEventText)}
	switch r.Event {
	case event.End, event.Refused:
		e.Type, e.Outcome = eventCall, "ok"
		e.Millis = float64(r.Duration.Microseconds()) / 1000
		if r.Err != nil {
			e.Outcome, e.Code, e.Error = "error", codeOf(r.Err), cut(r.Mask(r.Err.Error()), maxEventText)
		}
		if r.Event == event.Refused {
			e.Outcome = "refused"
		}
		l.count(r, e.Outcome)
	case event.Question:
		e.Type, e.Client = eventQuestion, questionClient(r)
	case event.Drift:
		e.Type, e.Detail = eventCatalogue, smallDetail(r.Detail)
	case event.Admin, event.Login:
		e.Type, e.Detail, e.Approver = eventAudit, smallDetail(r.Detail), cut(r.Approver, maxEventText)
	default:
		return
	}
	l.add(e)
}

// smallDetail returns a detail that is not too large.
func smallDetail(detail json.RawMessage) json.RawMessage {
	const most = 8 << 10
	if len(detail) > most {
		return nil
	}
	return slices.Clone(detail)
}

// codeOf returns the code of an error for programs.
func codeOf(err error) string {
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		return string(e.Code)
	}
	if e, ok := errors.AsType[*mcp.Error](err); ok {
		return fmt.Sprint(e.Code)
	}
	return ""
}

// callerName returns the name of a principal, "" for the local user.
func callerName(c *policy.Caller) string {
	if c == nil || c.Principal == nil {
		return ""
	}
	if c.Principal.Issuer == "" {
		return c.Principal.Subject
	}
	return c.Principal.Subject + " " + c.Principal.Issuer
}

// follow adds the events of a host until ctx or the host ends.
func (l *EventLog) follow(ctx context.Context, h *host.Host) {
	events := h.Events(ctx)
	go func() { // ends with ctx or the host
		for e := range events {
			l.add(hostEvent(h, &e))
		}
	}()
}

// hostEvent returns the event of an event of the host.
func hostEvent(h *host.Host, from *host.Event) adminEvent {
	e := adminEvent{Type: eventServer, Time: from.Time, Server: from.Server, Instance: from.Instance,
		State: string(from.State), Request: from.Pending, Answer: string(from.Answer)}
	if from.Err != nil {
		e.Code, e.Error = codeOf(from.Err), cut(h.Operator().Mask(from.Err.Error()), maxEventText)
	}
	switch {
	case from.Pending != "" && from.Decided:
		e.Type = eventDecided
	case from.Pending != "":
		e.Type = eventPending
	case from.IsReload():
		e.Type = eventConfig
		if from.Reload != nil {
			e.Detail = smallDetail(mustMarshal(from.Reload))
		}
	case len(from.Pins) > 0:
		e.Type = eventDrift
		for _, p := range from.Pins[:min(len(from.Pins), maxEventNames)] {
			e.Names = append(e.Names, cut(p.Name, maxEventText))
		}
	}
	return e
}

// add adds an event, and wakes the readers that wait.
func (l *EventLog) add(e adminEvent) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.add(e)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// after returns the events after a number, how many of them were lost, and a channel that is closed
// when there are more.
func (l *EventLog) after(number uint64) (events []adminEvent, first, missed uint64, changed <-chan struct{}) {
	const most = 256 // at a time, so that the lock is held shortly
	l.mu.Lock()
	defer l.mu.Unlock()
	first = number + 1
	if first < l.events.first {
		missed, first = l.events.first-first, l.events.first
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.events.from(first, most), first, missed, l.changed
}

// last returns the number of the last event.
func (l *EventLog) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events.last()
}

// count counts a request, for its caller and the rules of the policy.
func (l *EventLog) count(r *event.Record, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hits.add(r.Start, r.Rule, r.DryRun)
	if r.Caller == nil {
		return
	}
	key := keyOf(r.Caller)
	c := l.callers[key]
	if c == nil {
		if len(l.callers) >= maxCallers {
			l.removeIdleCaller()
		}
		c = &callerEntry{adminCaller: *newAdminCaller(r.Caller), First: r.Start.UTC()}
		c.Server = ""
		l.callers[key] = c
	}
	c.Requests++
	c.principal = r.Caller.Principal
	if outcome == "refused" {
		c.Refused++
	}
	c.Last = r.Start.UTC()
	if client := clientOf(r); client != "" {
		c.Client = client
	}
}

// questionClient returns the client that must answer a question, also if no policy read its name.
func questionClient(r *event.Record) string {
	named := *r
	if r.Action.Client.Name == "" {
		_ = json.Unmarshal(r.Client, &named.Action.Client) // an absent or invalid client has no name
	}
	return clientOf(&named)
}

// clientOf returns the name and version that the client of a request sent.
func clientOf(r *event.Record) string {
	if r.Action.Client.Name == "" {
		return ""
	}
	return cut(strings.TrimSpace(r.Action.Client.Name+" "+r.Action.Client.Version), maxEventText)
}

// removeIdleCaller removes the caller that was idle the longest. The lock is held.
func (l *EventLog) removeIdleCaller() {
	var oldest callerKey
	var last *callerEntry
	for key, c := range l.callers {
		if last == nil || c.Last.Before(last.Last) {
			oldest, last = key, c
		}
	}
	delete(l.callers, oldest)
}

// principal returns the principal of the last request of a subject, or nil.
func (l *EventLog) principal(subject, issuer string) *mcp.Principal {
	for _, c := range l.callerList() {
		if c.principal != nil && c.Subject == subject && c.Issuer == issuer {
			return c.principal
		}
	}
	return nil
}

// callerList returns the callers, the most recent first.
func (l *EventLog) callerList() []callerEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]callerEntry, 0, len(l.callers))
	for _, c := range l.callers {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b callerEntry) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Profile, b.Profile))
	})
	return all
}
