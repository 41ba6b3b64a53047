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

// Streams subscribes to changes of a server's lists. It has one event stream on
// its own connection for each client, and a session in the session era. Its
// methods must not be called concurrently.
type Streams struct {
	endpoint *url.URL
	era      echo.Era
	tool     string
	control  *conn  // opens the sessions and makes the changes
	change   []byte // the prepared call, nil before the first change
	id       []byte // aliases change
	all      []*stream
	reading  sync.WaitGroup
	notified chan error // from each stream, for each change
	closed   chan struct{}
}

// A stream is the event stream of one client.
type stream struct {
	net.Conn
	lines *bufio.Reader
}

const (
	// streamBuffer is the size of a read buffer. An event of the benchmark is
	// under 300 bytes.
	streamBuffer = 1 << 10
	// changeTimeout bounds the time until all clients are notified of a change.
	changeTimeout = 30 * time.Second
)

// DialStreams connects to the server at endpoint without opening a stream. The
// tool makes the changes: echo.ChangeTool or echo.UpdateTool.
func DialStreams(endpoint string, era echo.Era, tool string) (*Streams, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &Streams{endpoint: u, era: era, tool: tool, control: newConn(nc), notified: make(chan error),
		closed: make(chan struct{})}, nil
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

// get requests the event stream of a session.
func (s *Streams) get(session string) []byte {
	return []byte("GET " + s.endpoint.Path + " HTTP/1.1\r\nHost: " + s.endpoint.Host +
		"\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: " + s.era.Revision() + "\r\n" + sessionHeader(session) +
		"\r\n")
}

// subscribe subscribes a session to echo.UpdatedResource.
func (s *Streams) subscribe(session string) error {
	header := "MCP-Protocol-Version: " + s.era.Revision() + "\r\n" + sessionHeader(session)
	a, err := s.control.do(post(s.endpoint, header,
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+echo.UpdatedResource+`"}}`)))
	if err == nil && (a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"result":{}`))) {
		err = fmt.Errorf("status %d: %.300q", a.status, a.body)
	}
	return err
}

// notification returns the method of the notification of a change.
func (s *Streams) notification() string {
	if s.tool == echo.UpdateTool {
		return "notifications/resources/updated"
	}
	return "notifications/tools/list_changed"
}

// listen requests an event stream of changes.
func (s *Streams) listen() []byte {
	filter := `"toolsListChanged":true`
	if s.tool == echo.UpdateTool {
		filter = `"resourceSubscriptions":["` + echo.UpdatedResource + `"]`
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen",`+
		`"params":{"_meta":{%s},"notifications":{%s}}}`,
		firstID+len(s.all), Call{Era: s.era}.meta(), filter)
	return post(s.endpoint, "MCP-Protocol-Version: "+s.era.Revision()+"\r\nMcp-Method: subscriptions/listen\r\n", body)
}

// begin sends the request and reads the header of the response.
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

// await reads the next event, which must be a notification of the given method.
// Comments and events without data are skipped.
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
// stream has received the notification. It returns the times from the call to
// the first and to the last notification. The first change is a warm-up. No stream may be opened
// after it.
func (s *Streams) Change() (first, last time.Duration, err error) {
	select {
	case err := <-s.notified:
		return 0, 0, fmt.Errorf("a stream has an extra event after the last change (%w)", err)
	default:
	}
	end := time.Now().Add(changeTimeout)
	for _, one := range s.all {
		if err := one.SetDeadline(end); err != nil {
			return 0, 0, err
		}
	}
	begin := time.Now()
	received := make(chan error, 1)
	soonest := make(chan time.Duration, 1)
	go s.receiveAll(begin, soonest, received) // now, because notifications may precede the response to the call
	if err := s.call(end); err != nil {
		return 0, 0, fmt.Errorf("call of %s: %w", s.tool, err)
	}
	if err := <-received; err != nil {
		return 0, 0, fmt.Errorf("wait for %d streams: %w", len(s.all), err)
	}
	return <-soonest, time.Since(begin), nil
}

// receiveAll waits for the notification of each stream. It sends the time of the first one, and then the
// last error.
func (s *Streams) receiveAll(begin time.Time, soonest chan<- time.Duration, received chan<- error) {
	var failed error
	for i := range s.all {
		select {
		case err := <-s.notified:
			if err != nil {
				failed = err
			}
		case <-s.closed:
			return
		}
		if i == 0 {
			soonest <- time.Since(begin)
		}
	}
	received <- failed
}

// call makes the change. The response may be an event stream, since a server
// may notify the calling client as well.
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
	return Call{Era: s.era, Tool: s.tool}.quickCheck().check(a.body, s.id)
}

// begin prepares the call, in a session without a stream, and starts reading
// every stream.
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
		s.reading.Go(func() { s.receive(one) })
	}
	return nil
}

// receive reports each notification on one stream, until the first error.
func (s *Streams) receive(one *stream) {
	for more := true; more; {
		err := one.await(s.notification())
		more = err == nil
		select {
		case s.notified <- err:
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
