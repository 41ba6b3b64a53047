package recording

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxPause bounds a pause that a replay repeats, so that a damaged time does not stop it.
const maxPause = time.Hour

// A call is a recorded request and everything that belongs to it. A question ends a round.
type call struct {
	method, key string
	summary     string // of the params, for errors
	rounds      []*round
}

// A round contains the messages of the server up to a result, an error or a question.
type round struct {
	notes   []note
	pause   time.Duration  // before the end
	result  jsontext.Value // nil for an error
	err     *jsonrpc.Error // nil for a result
	cut     int            // the size of a result that was not recorded, in bytes
	answers string         // the canonical inputResponses that followed
}

// A note is a notification of a call.
type note struct {
	pause  time.Duration
	method string
	params []byte
}

// A builder builds a Recording from its lines.
type builder struct {
	connections map[string]*connection
	rec         Recording
}

// A connection holds the requests in progress on a connection.
type connection struct {
	requests  map[jsonrpc.ID]*request
	tokens    map[string]*request // by progress token
	latest    []*request          // in progress, and some that ended
	questions map[jsonrpc.ID]*round
	states    map[string]*call // whose last result asks for input, by requestState
	asking    map[string]*call // the same by key
}

// A request is a recorded request in progress.
type request struct {
	method string
	call   *call  // nil for a request that is not replayed
	open   *round // the current round
	last   time.Time
	ended  bool
}

func newConnection() *connection {
	return &connection{requests: map[jsonrpc.ID]*request{}, tokens: map[string]*request{},
		questions: map[jsonrpc.ID]*round{}, states: map[string]*call{}, asking: map[string]*call{}}
}

// isLocal reports whether a replay serves the method by itself.
func isLocal(method string) bool {
	switch method {
	case driver.MethodPing, driver.MethodLoggingSetLevel, driver.MethodResourcesSubscribe,
		driver.MethodResourcesUnsubscribe, driver.MethodSubscriptionsListen:
		return true
	}
	return false
}

func (b *builder) fromClient(c *connection, l *Entry, m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		if !isLocal(m.Method) {
			b.request(c, l, m)
		}
	case jsonrpc.Response:
		if r := c.questions[m.ID]; r != nil && m.Error == nil && l.Cut == 0 {
			r.answers = canonical(append(append([]byte(`{"input":`), m.Result...), '}'))
		}
		delete(c.questions, m.ID)
	case jsonrpc.Notification, jsonrpc.Batch, jsonrpc.Invalid:
	}
}

func (b *builder) request(c *connection, l *Entry, m *jsonrpc.Message) {
	r := &request{method: m.Method, open: &round{}, last: l.Time}
	c.requests[m.ID] = r
	switch m.Method {
	case driver.MethodInitialize, driver.MethodDiscover:
		return
	}
	if l.Cut != 0 {
		return // its params are unknown
	}
	key := keyOf(m.Method, m.Params)
	answers, isRetry := rawjson.Get(m.Params, "inputResponses")
	if state, ok := rawjson.Get(m.Params, "requestState"); ok {
		isRetry = true
		r.call = c.states[string(state)]
		delete(c.states, string(state))
	}
	if isRetry && r.call == nil {
		r.call = c.asking[key]
	}
	switch {
	case isRetry && r.call == nil:
		return // the recording began later
	case isRetry:
		r.call.rounds[len(r.call.rounds)-1].answers = canonical(answers)
		delete(c.asking, key)
	default:
		r.call = &call{method: m.Method, key: key, summary: summary(m.Params)}
		b.rec.order = append(b.rec.order, r.call)
	}
	c.latest = append(c.latest, r)
	meta, _ := rawjson.Get(m.Params, "_meta")
	if token, ok := rawjson.Get(meta, "progressToken"); ok {
		c.tokens[string(token)] = r
	}
}

// current returns the request in progress that began last, or nil. Messages of a server that
// identify no request are assigned to it.
func (c *connection) current() *request {
	for len(c.latest) > 0 {
		if r := c.latest[len(c.latest)-1]; !r.ended {
			return r
		}
		c.latest = c.latest[:len(c.latest)-1]
	}
	return nil
}

func (b *builder) fromServer(c *connection, l *Entry, m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		if r := c.requests[m.ID]; r != nil {
			delete(c.requests, m.ID)
			r.ended = true
			b.response(c, r, l, m)
		}
	case jsonrpc.Request:
		b.question(c, l, m)
	case jsonrpc.Notification:
		r := c.current()
		if m.Method == driver.NotificationProgress {
			token, _ := rawjson.Get(m.Params, "progressToken")
			r = c.tokens[string(token)]
		} else if m.Method != driver.NotificationMessage {
			return
		}
		if r != nil && r.call != nil && !r.ended && l.Cut == 0 && rawjson.Kind(m.Params) == '{' {
			r.open.notes = append(r.open.notes, note{r.pause(l.Time), m.Method, m.Params})
		}
	case jsonrpc.Batch, jsonrpc.Invalid:
	}
}

// pause returns the time since the last message of the request.
func (r *request) pause(now time.Time) time.Duration {
	d := min(max(now.Sub(r.last), 0), maxPause)
	r.last = now
	return d
}

// question ends a round with a server's request, in the form of revisions without sessions.
func (b *builder) question(c *connection, l *Entry, m *jsonrpc.Message) {
	r := c.current()
	known := m.Method == driver.MethodElicitationCreate || m.Method == driver.MethodSamplingCreateMessage ||
		m.Method == driver.MethodRootsList
	if r == nil || r.call == nil || !known || l.Cut != 0 {
		return
	}
	text := rawjson.AppendQuote([]byte(`{"resultType":"input_required","inputRequests":{"input":{"method":`), m.Method)
	if rawjson.Kind(m.Params) == '{' {
		text = append(append(text, `,"params":`...), m.Params...)
	}
	text = append(text, "}}}"...)
	r.open.pause, r.open.result = r.pause(l.Time), text
	r.call.rounds = append(r.call.rounds, r.open)
	c.questions[m.ID] = r.open
	r.open = &round{}
}

func (b *builder) response(c *connection, r *request, l *Entry, m *jsonrpc.Message) {
	switch {
	case r.method == driver.MethodInitialize || r.method == driver.MethodDiscover:
		b.describe(r.method, l, m)
		return
	case r.call == nil:
		return
	}
	end := r.open
	end.pause, end.result, end.err, end.cut = r.pause(l.Time), jsontext.Value(m.Result), m.Error, l.Cut
	if end.cut == 0 && end.err == nil && rawjson.Kind(end.result) != '{' {
		return // no result of the protocol
	}
	end.raise(r.method)
	r.call.rounds = append(r.call.rounds, end)
	if mcp.RawResult(end.result).ResultType() == driver.ResultInputRequired {
		c.asking[r.call.key] = r.call
		if state, ok := rawjson.Get(end.result, "requestState"); ok {
			c.states[string(state)] = r.call
		}
	}
}

// raise adds members that the newest revision requires and older revisions lack.
func (r *round) raise(method string) {
	if r.err != nil {
		if r.err.Code == driver.CodeResourceNotFound && method == driver.MethodResourcesRead {
			r.err.Code = mcp.CodeInvalidParams
		}
		return
	}
	if _, ok := rawjson.Get(r.result, "ttlMs"); driver.Cacheable(method) && !ok {
		r.result = rawjson.Set(r.result, "ttlMs", []byte("0"))
		r.result = rawjson.Set(r.result, "cacheScope", []byte(`"private"`))
	}
}

// describe records the server's description of itself: server/discover, or else initialize.
func (b *builder) describe(method string, l *Entry, m *jsonrpc.Message) {
	modern := method == driver.MethodDiscover
	if m.Error != nil || l.Cut != 0 || rawjson.Kind(m.Result) != '{' || b.rec.modern && !modern {
		return
	}
	declared, _ := rawjson.Get(m.Result, "capabilities")
	if rawjson.Kind(declared) != '{' {
		declared = []byte("{}")
	}
	text := []byte(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":[`)
	comma := ""
	for _, r := range slices.Backward(driver.Revisions()) {
		text = rawjson.AppendQuote(append(text, comma...), r)
		comma = ","
	}
	text, comma = append(text, `],"capabilities":{`...), ""
	for key, value := range rawjson.Members(declared) {
		if string(key) != "tasks" { // tasks of 2025-11-25 are not translated
			text = append(rawjson.AppendQuote(append(text, comma...), string(key)), ':')
			text = append(text, value...)
			comma = ","
		}
	}
	text = append(text, '}')
	if instructions, ok := rawjson.Get(m.Result, "instructions"); ok && rawjson.Kind(instructions) == '"' {
		text = append(append(text, `,"instructions":`...), instructions...)
	}
	info, _ := rawjson.Get(m.Result, "serverInfo")
	if modern {
		meta, _ := rawjson.Get(m.Result, "_meta")
		info, _ = rawjson.Get(meta, driver.MetaServerInfo)
	}
	if rawjson.Kind(info) == '{' {
		text = append(append(text, `,"_meta":{"`+driver.MetaServerInfo+`":`...), info...)
		text = append(text, '}')
	}
	text = append(text, '}')
	b.rec.discovered, b.rec.modern = text, modern
}

func (b *builder) recording() (*Recording, error) {
	rec := &Recording{calls: map[string][]*call{}, discovered: b.rec.discovered}
	for _, c := range b.rec.order {
		if len(c.rounds) > 0 { // otherwise the server did not respond
			rec.order = append(rec.order, c)
			rec.calls[c.key] = append(rec.calls[c.key], c)
		}
	}
	if rec.discovered == nil && len(rec.order) == 0 {
		return nil, errors.New("the recording has no answer of a server")
	}
	if rec.discovered == nil {
		b.describe(driver.MethodInitialize, &Entry{}, &jsonrpc.Message{Result: []byte("{}")})
		rec.discovered = b.rec.discovered
	}
	return rec, nil
}

// keyOf returns a text that is equal for equal requests: it contains the method, and the params in
// canonical form (RFC 8785) without `_meta` and answers. Absent arguments equal empty arguments.
func keyOf(method string, params []byte) string {
	text, comma := []byte{'{'}, ""
	for key, value := range rawjson.Members(params) {
		switch string(key) {
		case "_meta", "inputResponses", "requestState":
			continue
		case "arguments":
			if v := bytes.TrimSpace(value); bytes.Equal(v, []byte("null")) || isEmptyObject(v) {
				continue
			}
		}
		text = append(rawjson.AppendQuote(append(text, comma...), string(key)), ':')
		text, comma = append(text, value...), ","
	}
	return method + " " + canonical(append(text, '}'))
}

func isEmptyObject(v []byte) bool {
	for range rawjson.Members(v) {
		return false
	}
	return rawjson.Kind(v) == '{'
}

func canonical(text []byte) string {
	v := jsontext.Value(bytes.Clone(text))
	if v.Canonicalize() != nil {
		return string(text)
	}
	return string(v)
}

// summary returns the part of params that identifies a request in errors.
func summary(params []byte) string {
	const most = 80 // characters
	text := ""
	for _, key := range []string{"name", "uri", "taskId"} {
		if raw, ok := rawjson.Get(params, key); ok {
			text, _ = rawjson.Unquote(raw)
			break
		}
	}
	if arguments, ok := rawjson.Get(params, "arguments"); ok && !isEmptyObject(arguments) {
		text += " " + canonical(arguments)
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}
