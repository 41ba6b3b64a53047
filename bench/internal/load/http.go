package load

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// dialTimeout bounds connecting to a server that has announced itself.
const dialTimeout = 5 * time.Second

// An HTTP load has several connections, each with one call in flight. In the
// session era each has its own session.
type HTTP struct {
	call    Call
	callers []*caller
}

// A caller is one connection and its prepared request, in which only the id
// changes.
type caller struct {
	call       Call
	quickCheck quickCheck
	conn       *conn
	session    string
	request    []byte
	id         []byte // aliases request
	again      *second
	calls      int    // since the connection was made
	token      []byte // digits of the token of the principal; aliases request
	principal  int    // of the next call
	stride     int    // from a principal to the next one of this connection
}

// DialHTTP connects n times to the server at endpoint, opens sessions in the
// session era, and checks one response on each connection.
func DialHTTP(endpoint string, n int, call Call) (*HTTP, error) {
	h := &HTTP{call: call}
	shared := ""
	for i := range n {
		c, err := newCaller(endpoint, call, i, n, shared)
		if err != nil {
			h.Close()
			return nil, err
		}
		if call.OneSession {
			shared = c.session
		}
		h.callers = append(h.callers, c)
	}
	return h, nil
}

// newCaller connects the i-th of n callers, to a session if that is not empty.
func newCaller(endpoint string, call Call, i, n int, session string) (*caller, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return nil, err
	}
	c := &caller{call: call, quickCheck: call.quickCheck(), conn: newConn(nc), session: session,
		principal: i, stride: n}
	if err := c.ready(u); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// ready opens the session, prepares the request and makes the first call.
func (c *caller) ready(u *url.URL) error {
	if err := c.conn.SetDeadline(time.Now().Add(grace)); err != nil {
		return err
	}
	header := "MCP-Protocol-Version: " + c.call.Era.Revision() + "\r\n"
	if c.call.Era == echo.Modern {
		header += "Mcp-Method: " + c.call.Method() + "\r\n"
		if c.call.List == 0 {
			header += "Mcp-Name: " + c.call.tool() + "\r\n"
		}
	} else {
		if c.session == "" {
			var err error
			if c.session, err = c.conn.openSession(u); err != nil {
				return err
			}
		}
		header += sessionHeader(c.session)
	}
	if c.call.Callers > 0 {
		header += "Authorization: Bearer " + Token(0) + "\r\n"
	}
	body, id := c.call.message()
	c.request = post(u, header, body)
	if c.call.Callers > 0 {
		at := bytes.Index(c.request, []byte(Token(0))) + len(Token(0))
		c.token = c.request[at-tokenDigits : at]
	}
	id += len(c.request) - len(body)
	c.id = c.request[id : id+idDigits]
	if c.call.further() > 0 {
		c.again = &second{list: c.call.List > 0, url: u, header: header, body: body[:len(body)-len("}}")]}
	}
	return c.once()
}

// openSession initializes a session and returns its id.
func (c *conn) openSession(u *url.URL) (string, error) {
	a, err := c.do(post(u, "", initialize))
	if err != nil {
		return "", fmt.Errorf("initialize: %w", err)
	}
	if a.status != http.StatusOK {
		return "", fmt.Errorf("initialize: status %d: %.300q", a.status, a.body)
	}
	session := string(headerValue(a.header, "Mcp-Session-Id"))
	if err := checkInitialized(a.body); err != nil {
		return "", err
	}
	header := "MCP-Protocol-Version: " + echo.Session.Revision() + "\r\n" + sessionHeader(session)
	a, err = c.do(post(u, header, initialized))
	if err != nil {
		return "", fmt.Errorf("initialized: %w", err)
	}
	if a.status != http.StatusAccepted {
		return "", fmt.Errorf("initialized: status %d: %.300q", a.status, a.body)
	}
	return session, nil
}

// sessionHeader returns an empty string for the empty id, since a server may
// have no sessions.
func sessionHeader(id string) string {
	if id == "" {
		return ""
	}
	return "Mcp-Session-Id: " + id + "\r\n"
}

// post returns the bytes of one request. header contains further header lines,
// or is empty.
func post(u *url.URL, header string, body []byte) []byte {
	var b bytes.Buffer
	b.WriteString("POST " + u.Path + " HTTP/1.1\r\nHost: " + u.Host +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + header +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n")
	b.Write(body)
	return b.Bytes()
}

// once makes one call and checks the response.
func (c *caller) once() error {
	increment(c.id)
	if c.token != nil {
		copy(c.token, Token(c.principal % c.call.Callers)[len(Token(0))-tokenDigits:])
		c.principal += c.stride
	}
	a, err := c.conn.do(c.request)
	if err != nil {
		return err
	}
	for range c.call.further() {
		if a.status != http.StatusOK {
			break
		}
		var request []byte
		if request, err = c.again.request(a.body, c.id); err == nil {
			a, err = c.conn.do(request)
		}
		if err != nil {
			return err
		}
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("status %d: %.300q", a.status, a.body)
	}
	c.calls++
	if c.calls%sampleEvery != 1 {
		return c.quickCheck.check(a.body, c.id)
	}
	want, check := "application/json", c.call.check
	if c.call.SSE {
		want, check = "text/event-stream", c.call.checkStream
	}
	if got := headerValue(a.header, "Content-Type"); !bytes.HasPrefix(got, []byte(want)) {
		return fmt.Errorf("content type %q, want %q", got, want)
	}
	return check(a.body, c.id)
}

// Run implements Load.
func (h *HTTP) Run(d time.Duration) (Slice, error) {
	var stop atomic.Bool
	begin := time.Now() // before the timer, so that no slice is shorter than d
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	errs := make([]error, len(h.callers))
	calls := make([]int, len(h.callers))
	var all sync.WaitGroup
	for i, c := range h.callers {
		if err := c.conn.SetDeadline(begin.Add(d + grace)); err != nil {
			return Slice{}, err
		}
		all.Go(func() {
			before := c.calls
			for done := false; !done; done = errs[i] != nil || stop.Load() {
				errs[i] = c.once()
			}
			calls[i] = c.calls - before
		})
	}
	all.Wait()
	s := Slice{Wall: time.Since(begin)}
	for i, err := range errs {
		if err != nil {
			return s, fmt.Errorf("connection %d: %w", i, err)
		}
		s.Calls += calls[i]
	}
	return s, nil
}

// Close implements Load. Sessions are left to the server.
func (h *HTTP) Close() error {
	for _, c := range h.callers {
		c.conn.Close()
	}
	return nil
}
