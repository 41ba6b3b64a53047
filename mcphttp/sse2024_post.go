package mcphttp

import (
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A POST of HTTP+SSE may arrive at another process than the event stream. The id of such a session
// names the process of the stream, which receives the message over the bus, checks the principal and
// the limits as for its own requests, and confirms the message.

// postTimeout is how long a client waits until the process of its stream has accepted a message.
const postTimeout = 5 * time.Second

// A passedPost accompanies a message for another process, or is the receipt.
type passedPost struct {
	ID     string         `json:"id"`
	From   string         `json:"from,omitempty"`   // the process that waits; empty in a receipt
	Header http.Header    `json:"header,omitempty"` // the passedHeaders
	Status int            `json:"status,omitempty"` // of a refusal
	Error  *jsonrpc.Error `json:"error,omitempty"`
}

// passedHeaders are the headers that may differ for each message. No other header is passed on, since
// it may contain a credential and a bus may be read by others.
var passedHeaders = []string{"Accept", "Baggage", "Content-Type", headerVersion, "Traceparent", "Tracestate"}

// passHeaders replaces the passedHeaders of a request.
func passHeaders(to, from http.Header) {
	for _, name := range passedHeaders {
		if delete(to, name); len(from[name]) > 0 {
			to[name] = from[name]
		}
	}
}

// An endpoint is a session of HTTP+SSE, and the request of its stream.
type endpoint struct {
	session *session
	request *http.Request
}

// addEndpoint lets other processes pass messages to a session.
func (t *sessions) addEndpoint(s *session, r *http.Request) (remove func()) {
	x, key := &t.shared, t.opts.Sessions.key(s.id)
	if x.bus == nil {
		return func() {}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endpoints[key] = endpoint{s, r}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.endpoints, key)
	}
}

// passPost passes a message to the process that the id of a session names, and waits for the receipt.
func (h *Handler) passPost(r *http.Request, head *head, id string, msg *jsonrpc.Message) *refusal {
	t, x := h.sessions, &h.sessions.shared
	process := id[min(len(id), sessionIDLen):]
	switch {
	case x.bus == nil || !isProcess(process) || process == x.process || strings.Trim(id, base32) != "":
		return errNoSession
	case msg.Kind() == jsonrpc.Batch:
		return refuse(http.StatusBadRequest, "this protocol version has no batches")
	}
	if no := t.subscribe(); no != nil {
		return no
	}
	if no := h.inFlight.acquire(head.body.caller, 1); no != nil {
		return no
	}
	defer h.inFlight.release(head.body.caller, 1)
	post := &passedPost{Header: http.Header{}}
	passHeaders(post.Header, r.Header)
	c := carried{Session: t.opts.Sessions.key(id), Principal: digest(head.principal.Key()),
		Message: jsonrpc.Append(nil, msg)}
	got, receivers, err := x.pass(r.Context(), process, &c, post, postTimeout)
	switch {
	case errors.Is(err, errCarried):
		return refuse(http.StatusRequestEntityTooLarge,
			"the message arrived at another process of the server, which passes on at most 1 MiB")
	case err != nil:
		return x.failed(err)
	case receivers == 0: // the process is gone, and its streams
		return errNoSession
	case got == nil:
		return refuse(http.StatusGatewayTimeout,
			"the process of the event stream did not confirm the message, which it may have received")
	case got.Error != nil:
		return &refusal{got.Status, got.Error}
	}
	return nil
}

// errCarried is the error for a message that the bus cannot carry.
var errCarried = errors.New("mcphttp: a message to another process has more than 1 MiB")

// pass sends a message to another process and waits for the receipt, which is nil if it does not arrive
// in time.
func (x *sharedSessions) pass(
	ctx context.Context, process string, c *carried, post *passedPost, limit time.Duration,
) (got *passedPost, receivers int, err error) {
	post.ID, post.From = rand.Text(), x.process
	c.Post = post
	data, err := stdjson.Marshal(c)
	if err != nil || len(data) > maxCarried {
		return nil, 0, errCarried
	}
	receipt := make(chan *passedPost, 1)
	x.mu.Lock()
	x.receipts[post.ID] = receipt
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.receipts, post.ID)
	}()
	if receivers, err = x.publish(topicOf(process), data); err != nil || receivers == 0 {
		return nil, 0, err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case got = <-receipt:
	case <-late.C:
	case <-ctx.Done():
	}
	return got, receivers, nil
}

// receivePost handles a message that another process passed on, or a receipt, without waiting.
func (h *Handler) receivePost(c *carried) {
	x := &h.sessions.shared
	if c.Post.From == "" {
		x.mu.Lock()
		defer x.mu.Unlock()
		if receipt := x.receipts[c.Post.ID]; receipt != nil {
			delete(x.receipts, c.Post.ID) // a second receipt must not wait
			receipt <- c.Post
		}
		return
	}
	go func() { // ends when the message is accepted; the sender limits the messages in progress
		receipt := &passedPost{ID: c.Post.ID}
		if c.Record != nil {
			h.sessions.hear(c)
		} else if no := h.servePassed(c); no != nil {
			receipt.Status, receipt.Error = no.status, no.err
		}
		if !isProcess(c.Post.From) {
			return
		}
		if _, err := h.sessions.send(topicOf(c.Post.From), &carried{Post: receipt}); err != nil {
			x.log.error(context.Background(), "mcphttp: receipt not sent to another process", err)
		}
	}()
}

// servePassed serves a message that another process passed on as a POST that arrived here: with the
// passedHeaders of the POST, and all else of the request of the same principal that opened the stream.
func (h *Handler) servePassed(c *carried) *refusal {
	x := &h.sessions.shared
	x.mu.Lock()
	e := x.endpoints[c.Session]
	x.mu.Unlock()
	msg, err := jsonrpc.Decode(c.Message)
	if e.session == nil || e.session.digest != c.Principal || err != nil {
		return errNoSession
	}
	charge := &bodyCharge{quota: h.bodies, caller: e.session.caller}
	defer charge.release()
	if !charge.set(int64(len(c.Message))) {
		return charge.refused
	}
	s := h.sessions.acquire(e.session.id, e.session.principal())
	if s == nil { // it ended meanwhile
		return errNoSession
	}
	r := e.request.WithContext(context.WithoutCancel(e.request.Context()))
	r.Method, r.Header = http.MethodPost, r.Header.Clone()
	passHeaders(r.Header, c.Post.Header)
	return h.acceptPost(r, s, charge, msg)
}
