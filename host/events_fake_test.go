package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const extensionEvents = "io.modelcontextprotocol/events"

// An eventServer is a server with an event "changed", in the modes push or poll. Its cursors are counts of events,
// unless it lacks cursors.
type eventServer struct {
	*mcp.Server
	mode        string
	lacksCursor bool

	mu      sync.Mutex // guards the fields below
	log     []string   // the data of all events
	changed chan struct{}
	end     *mcp.Error
	opened  int // streams
}

func newEventServer(name, mode string) *eventServer {
	s := &eventServer{Server: mcp.NewServer(name, "1", nil), mode: mode, changed: make(chan struct{})}
	s.AddExtension(extensionEvents, map[string]any{"listChanged": true})
	s.HandleMethod("events/list", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"resultType":"complete","events":[{"name":"changed","description":"of ` + name +
			`","delivery":["` + mode + `","webhook"],"inputSchema":{"type":"object"},"payloadSchema":{"type":"object"}}]}`), nil
	}))
	s.HandleMethod("events/poll", mcp.HandlerFunc(s.poll))
	s.HandleMethod("events/stream", mcp.HandlerFunc(s.stream))
	return s
}

func (s *eventServer) emit(data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, data)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *eventServer) terminate(e *mcp.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = e
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin returns the position of a cursor.
func (s *eventServer) begin(req *mcp.Request) int {
	raw, _ := req.Param("cursor")
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" {
		return len(s.log)
	}
	n, _ := strconv.Atoi(text)
	return n
}

func (s *eventServer) cursor(n int) string {
	if s.lacksCursor {
		return "null"
	}
	return fmt.Sprintf("%q", strconv.Itoa(n))
}

func (s *eventServer) event(n int) string {
	return fmt.Sprintf(`"eventId":"%d","name":"changed","timestamp":"2026-10-05T12:00:00Z","data":%s,"extra":1`,
		n, s.log[n])
}

func (s *eventServer) poll(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != "poll" {
		return nil, &mcp.Error{Code: -32026, Message: "unsupported"}
	}
	if s.end != nil {
		return nil, s.end
	}
	text := ""
	for n := s.begin(req); n < len(s.log); n++ {
		text += ",{" + s.event(n) + "}"
	}
	return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","events":[%s],"cursor":%s,"truncated":false,`+
		`"hasMore":false,"nextPollMs":2000}`, text[min(len(text), 1):], s.cursor(len(s.log)))), nil
}

func (s *eventServer) stream(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	s.mu.Lock()
	if s.mode != "push" {
		s.mu.Unlock()
		return nil, &mcp.Error{Code: -32026, Message: "unsupported"}
	}
	s.opened++
	n, meta := s.begin(req), fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, req.ID)
	text := fmt.Sprintf(`{"cursor":%s,"truncated":false,%s`, s.cursor(n), meta)
	s.mu.Unlock()
	if err := req.Notify(ctx, "notifications/events/active", json.RawMessage(text)); err != nil {
		return nil, err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened--
	}()
	for {
		s.mu.Lock()
		var texts []string
		for ; n < len(s.log); n++ {
			texts = append(texts, fmt.Sprintf(`{%s,"cursor":%s,%s`, s.event(n), s.cursor(n+1), meta))
		}
		changed, end := s.changed, s.end
		s.mu.Unlock()
		for _, text := range texts {
			_ = req.Notify(ctx, "notifications/events/event", json.RawMessage(text))
		}
		if end != nil {
			text, _ := json.Marshal(map[string]any{"error": end})
			return mcp.EmptyResult{}, req.Notify(ctx, "notifications/events/terminated",
				json.RawMessage(string(text[:len(text)-1])+","+meta))
		}
		heartbeat := time.NewTimer(30 * time.Second)
		select {
		case <-changed:
		case <-heartbeat.C:
			_ = req.Notify(ctx, "notifications/events/heartbeat", json.RawMessage(`{"cursor":`+s.cursor(n)+","+meta))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		heartbeat.Stop()
	}
}

// A follower is a caller's stream of events.
type follower struct {
	cancel context.CancelFunc
	done   chan error

	mu    sync.Mutex
	notes []note
}

type note struct {
	Method    string
	EventID   string          `json:"eventId"`
	Name      string          `json:"name"`
	Data      json.RawMessage `json:"data"`
	Extra     any             `json:"extra"`
	Cursor    *string         `json:"cursor"`
	Truncated bool            `json:"truncated"`
	Error     *mcp.Error      `json:"error"`
}

// stream opens a stream of events.
func stream(t *testing.T, c *mcp.Client, params map[string]any) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{cancel: cancel, done: make(chan error, 1)}
	o := mcp.CallOptions{Notify: func(method string, params json.RawMessage) {
		n := note{Method: method}
		if err := json.Unmarshal(params, &n); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notes = append(f.notes, n)
	}}
	go func() {
		_, err := c.Do(mcp.WithCallOptions(ctx, o), "events/stream", params)
		f.done <- err
	}()
	return f
}

// received returns the notifications of a method.
func (f *follower) received(method string) (all []note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.notes {
		if n.Method == "notifications/events/"+method {
			all = append(all, n)
		}
	}
	return all
}

// data returns the data of the events.
func (f *follower) data() (all []string) {
	for _, n := range f.received("event") {
		all = append(all, string(n.Data))
	}
	return all
}

// A polled is a result of events/poll.
type polled struct {
	Events    []note  `json:"events"`
	Cursor    *string `json:"cursor"`
	Truncated bool    `json:"truncated"`
	HasMore   bool    `json:"hasMore"`
	NextPoll  int     `json:"nextPollMs"`
}

func (p *polled) data() (all []string) {
	for _, n := range p.Events {
		all = append(all, string(n.Data))
	}
	return all
}

func poll(t *testing.T, c *mcp.Client, params map[string]any) (p *polled, err error) {
	t.Helper()
	raw, err := c.Do(t.Context(), "events/poll", params)
	if err != nil {
		return nil, err
	}
	p = &polled{}
	if err := json.Unmarshal(raw, p); err != nil {
		t.Fatal(err)
	}
	return p, nil
}

func eventHost(t *testing.T, servers map[string]*eventServer, o host.Options) *host.Host {
	t.Helper()
	handlers := map[string]mcp.Handler{}
	for name, s := range servers {
		handlers[name] = s
	}
	return newHostWith(t, handlers, o)
}
