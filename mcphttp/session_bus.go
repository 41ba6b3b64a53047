package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	processTopic = "mcphttp/process/" // before the name of a process; responses to its requests
	everyTopic   = "mcphttp/every"    // cancellations and requests for copies; each process subscribes
	nameLen      = 8                  // of a process, whose characters are those of rand.Text
	base32       = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	// receiptTimeout is how long a client waits until its message has taken effect at another process.
	receiptTimeout = 250 * time.Millisecond
	// maxCarried is the largest payload that each bus carries.
	maxCarried = 1 << 20
)

// A carried is a message for another process, which checks the session and its principal again.
type carried struct {
	Session   string             `json:"session,omitempty"` // the key of its record
	Principal string             `json:"principal,omitempty"`
	Message   stdjson.RawMessage `json:"message,omitempty"`
	// Repeat asks for copies of responses that the named process may lack.
	Repeat string `json:"repeat,omitempty"`
	// Stream asks about a stream of the session, or answers.
	Stream *streamReport `json:"stream,omitempty"`
	// Record is the new record of a session, for its listener.
	Record *replica.Session `json:"record,omitempty"`
	// Post is set for a message of HTTP+SSE, a new record, and a receipt.
	Post *passedPost `json:"post,omitempty"`
}

// isProcess reports whether a name has the form of the names of processes.
func isProcess(name string) bool { return len(name) == nameLen && strings.Trim(name, base32) == "" }

// topicOf returns the topic of the messages to a process.
func topicOf(process string) string { return processTopic + process + "-" }

// subscribe receives the messages of other processes from now on. It is called for each session and
// subscription, so that a bus that failed is tried again.
func (t *sessions) subscribe() *refusal {
	if t.shared.bus == nil {
		return nil
	}
	return t.join()
}

func (t *sessions) join() *refusal {
	x := &t.shared
	x.joining.Lock()
	defer x.joining.Unlock()
	topics := []string{topicOf(x.process), everyTopic}
	if x.announce != nil {
		topics = append(topics, changesTopic)
	}
	for _, topic := range topics[len(x.leave):] {
		receive := t.receive
		if topic == changesTopic {
			receive = t.receiveChanges
		}
		stop, err := x.bus.Subscribe(context.Background(), topic, receive)
		if err != nil {
			return x.failed(err)
		}
		x.leave = append(x.leave, stop)
	}
	return nil
}

// elsewhere sends a message about a request that is not in progress here to the process that may know
// the request. A message that no process receives is dropped, as after the end of the request.
func (t *sessions) elsewhere(ctx context.Context, m *jsonrpc.Message) {
	message := sessionContextFrom(ctx)
	if message == nil || message.of.shared == nil {
		return
	}
	topic := everyTopic
	if m.Kind() == jsonrpc.Response {
		name, _, _ := strings.Cut(strings.Trim(m.ID.String(), `"`), "-")
		if !isProcess(name) || name == t.shared.process { // the client must not choose any other topic
			return
		}
		topic = topicOf(name)
	}
	if id, reason, ok := peer.ParseCancelled(m.Params); ok && m.Kind() == jsonrpc.Notification {
		params, err := stdjson.Marshal(map[string]any{"requestId": id, "reason": reason}) // of bounded size
		if err != nil {
			return
		}
		m = &jsonrpc.Message{Method: m.Method, Params: params}
	}
	s := message.of
	c := carried{Session: s.shared.key, Principal: s.digest, Message: jsonrpc.Append(nil, m)}
	data, err := stdjson.Marshal(&c)
	if len(data) > maxCarried && m.Kind() == jsonrpc.Response {
		refused := &jsonrpc.Message{ID: m.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
			Message: "the response arrived at another process of the server, which passes on at most 1 MiB"}}
		c.Message = jsonrpc.Append(nil, refused)
		data, err = stdjson.Marshal(&c)
	}
	if err == nil && m.Kind() == jsonrpc.Response {
		t.shared.retain(&sentResponse{topic: topic, session: c.Session, principal: c.Principal, data: data,
			at: time.Now()})
	}
	receivers, failed := t.shared.publish(topic, data)
	if failed != nil { // perhaps a connection that broke while it was idle; a second copy has no effect
		receivers, failed = t.shared.publish(topic, data)
	}
	if failed != nil {
		t.repeatSoon(false)
	}
	if err = errors.Join(err, failed); err == nil && receivers == 0 {
		err = errors.New("its process is gone")
	}
	if err != nil {
		t.shared.log.error(ctx, "mcphttp: message to another process not delivered", err)
	}
}

// receive handles a message of another process, without waiting.
func (t *sessions) receive(payload []byte) {
	var c carried
	switch {
	case payload == nil: // the bus may have lost messages, also requests for copies
		t.repeatSoon(true)
		return
	case stdjson.Unmarshal(payload, &c) != nil, c.Repeat == t.config.Process:
		return
	case c.Repeat != "":
		t.repeatSoon(false)
		return
	case c.Post != nil:
		t.shared.post(&c)
		return
	}
	s := t.shared.find(&c)
	if c.Stream != nil {
		t.receiveReport(s, &c)
		return
	}
	m, err := jsonrpc.Decode(c.Message)
	if err == nil && s != nil && s.conversation() != nil {
		s.conversation().Deliver(m)
	}
}

// find returns the session of a message of another process, or nil.
func (x *sharedSessions) find(c *carried) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.byKey[c.Session]; s != nil && s.digest == c.Principal {
		return s
	}
	return nil
}
