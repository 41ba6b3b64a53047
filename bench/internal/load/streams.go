package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// Streams listens to changes of a server's lists: one open event stream on a
// connection of its own for each client, and in the session era a session. The
// methods are called one at a time.
type Streams struct {
	endpoint *url.URL
	era      echo.Era
	tool     string
	control  *conn  // opens the sessions and makes the changes
	change   []byte // the call, once there was one
	id       []byte // aliases change
	all      []*stream
	reading  sync.WaitGroup
	heard    chan error // from each stream, for each change
	closed   chan struct{}
}

// A stream is the one of one client.
type stream struct {
	net.Conn
	lines *bufio.Reader
}

const (
	// streamBuffer holds what a stream reads at once; an event of the benchmark
	// is under 300 bytes.
	streamBuffer = 1 << 10
	// changeTimeout bounds the time until all have heard of a change.
	changeTimeout = 30 * time.Second
)

// DialStreams connects to the server at endpoint; no stream is open yet. The
// tool is the one that makes the changes: echo.ChangeTool or echo.UpdateTool.
func DialStreams(endpoint string, era echo.Era, tool string) (*Streams, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &Streams{endpoint: u, era: era, tool: tool, control: newConn(nc), heard: make(chan error), closed: make(chan struct{})}, nil
}

// Open opens n more streams, within limit.
func (s *Streams) Open(n int, limit time.Duration) error {
	end := time.Now().Add(limit)
	if err := s.control.SetDeadline(end); err != nil {
		return err
	}
	for range n {
		one, err := s.open(end)
		if err != nil {
			return fmt.Errorf("stream %d: %w", len(s.all), err)
		}
		s.all = append(s.all, one)
	}
	return nil
}

func (s *Streams) open(end time.Time) (*stream, error) {
	request := s.listen()
	if s.era == echo.Session {
		session, err := s.control.openSession(s.endpoint)
		if err != nil {
			return nil, err
		}
		if s.tool == echo.UpdateTool {
			if err := s.subscribe(session); err != nil {
				return nil, err
			}
		}
		request = s.get(session)
	}
	nc, err := net.DialTimeout("tcp", s.endpoint.Host, dialTimeout)
	if err != nil {
		return nil, err
	}
	one := &stream{Conn: nc}
	if err := one.begin(request, end); err != nil {
		nc.Close()
		return nil, err
	}
	if s.era == echo.Session {
		return one, nil
	}
	if err := one.await("notifications/subscriptions/acknowledged"); err != nil {
		nc.Close()
		return nil, err
	}
	return one, nil
}

// get asks for the stream of a session.
func (s *Streams) get(session string) []byte {
	return []byte("GET " + s.endpoint.Path + " HTTP/1.1\r\nHost: " + s.endpoint.Host +
		"\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: " + s.era.Revision() + "\r\n" + sessionHeader(session) + "\r\n")
}

// subscribe subscribes a session to the resource that is updated.
func (s *Streams) subscribe(session string) error {
	header := "MCP-Protocol-Version: " + s.era.Revision() + "\r\n" + sessionHeader(session)
	a, err := s.control.do(post(s.endpoint, header,
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+echo.UpdatedResource+`"}}`)))
	if err == nil && (a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"result":{}`))) {
		err = fmt.Errorf("status %d: %.300q", a.status, a.body)
	}
	return err
}

// notification is the method of the notification that every change sends.
func (s *Streams) notification() string {
	if s.tool == echo.UpdateTool {
		return "notifications/resources/updated"
	}
	return "notifications/tools/list_changed"
}

// listen asks for a stream of changes.
func (s *Streams) listen() []byte {
	filter := `"toolsListChanged":true`
	if s.tool == echo.UpdateTool {
		filter = `"resourceSubscriptions":["` + echo.UpdatedResource + `"]`
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"_meta":{%s},"notifications":{%s}}}`,
		firstID+len(s.all), Call{Era: s.era}.meta(), filter)
	return post(s.endpoint, "MCP-Protocol-Version: "+s.era.Revision()+"\r\nMcp-Method: subscriptions/listen\r\n", body)
}

// begin sends the request and reads the head of the answer.
func (s *stream) begin(request []byte, end time.Time) error {
	if err := s.SetDeadline(end); err != nil {
		return err
	}
	if _, err := s.Write(request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(s, streamBuffer), nil)
	if err != nil {
		return err
	}
	if got := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || got != "text/event-stream" {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, streamBuffer))
		return fmt.Errorf("status %d, content type %q: %.300q", answer.StatusCode, got, text)
	}
	s.lines = bufio.NewReaderSize(answer.Body, streamBuffer)
	return nil
}

// await reads the next event, which must be that notification. Comments and
// events without data are skipped.
func (s *stream) await(method string) error {
	for {
		line, err := s.lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue
		}
		if !bytes.Contains(data, []byte(strconv.Quote(method))) {
			return fmt.Errorf("event is %.300q, want %s", data, method)
		}
		return nil
	}
}

// Change calls the tool that changes the server's list and waits until every
// stream has the notification of it. It returns the time from the call to the
// last one. The first change is for warming up: no more
// streams may be opened from then on.
func (s *Streams) Change() (time.Duration, error) {
	select {
	case err := <-s.heard:
		return 0, fmt.Errorf("a stream has another event after the one of the last change (%w)", err)
	default:
	}
	end := time.Now().Add(changeTimeout)
	for _, one := range s.all {
		if err := one.SetDeadline(end); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	if err := s.call(end); err != nil {
		return 0, fmt.Errorf("call of %s: %w", s.tool, err)
	}
	var failed error
	for range s.all {
		if err := <-s.heard; err != nil {
			failed = err
		}
	}
	if failed != nil {
		return 0, fmt.Errorf("wait for %d streams: %w", len(s.all), failed)
	}
	return time.Since(begin), nil
}

// call makes the change. The answer may come as a stream of its own, since a
// server may tell the client that calls as well.
func (s *Streams) call(end time.Time) error {
	if err := s.control.SetDeadline(end); err != nil {
		return err
	}
	if s.change == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	increment(s.id)
	a, err := s.control.do(s.change)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("status %d: %.300q", a.status, a.body)
	}
	return Call{Era: s.era, Tool: s.tool}.glance().check(a.body, s.id)
}

// begin prepares the call, in a session that has no stream, and lets every
// stream be read.
func (s *Streams) begin() error {
	call := Call{Era: s.era, Tool: s.tool}
	header := "MCP-Protocol-Version: " + s.era.Revision() + "\r\n"
	if s.era == echo.Session {
		session, err := s.control.openSession(s.endpoint)
		if err != nil {
			return err
		}
		header += sessionHeader(session)
	} else {
		header += "Mcp-Method: tools/call\r\nMcp-Name: " + call.Tool + "\r\n"
	}
	body, id := call.message()
	s.change = post(s.endpoint, header, body)
	id += len(s.change) - len(body)
	s.id = s.change[id : id+idDigits]
	for _, one := range s.all {
		s.reading.Go(func() { s.hear(one) })
	}
	return nil
}

// hear tells of each notification on one stream, until the first error.
func (s *Streams) hear(one *stream) {
	for more := true; more; {
		err := one.await(s.notification())
		more = err == nil
		select {
		case s.heard <- err:
		case <-s.closed:
			return
		}
	}
}

// Close ends the streams. Sessions are left to the server.
func (s *Streams) Close() error {
	close(s.closed)
	s.control.Close()
	for _, one := range s.all {
		one.Close()
	}
	s.reading.Wait()
	return nil
}
