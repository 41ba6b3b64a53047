package main

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A proxyMode is how the proxy treats what passes.
type proxyMode struct {
	stallUp, stallDown bool // nothing passes in this direction
	cutAfter           int  // a connection is reset after at most so many bytes; 0 for never
	refuse             bool // new connections are reset
	duplicate          bool // POSTs are delivered twice; the client gets the first response
	retry              bool // POSTs are delivered twice; the first connection to the server is cut
	delay              time.Duration
}

// A proxy is a TCP proxy in front of the server. It reads requests as a whole, so that it can
// deliver them twice, and copies responses byte by byte. With several targets it sends each request
// to the next target that accepts a connection.
type proxy struct {
	listener net.Listener
	history  *history
	raw      bool   // the protocol is not HTTP: bytes are copied in both directions
	host     string // at which the proxy listens; empty for this machine only

	mu       sync.Mutex // guards the fields below
	targets  []string   // the addresses of the server; empty while there is none
	last     int        // counts the uses of targets
	mode     proxyMode
	modeDone chan struct{} // closed when the mode changes
	links    map[*link]struct{}
	closed   bool
	all      sync.WaitGroup
}

// A link is one connection of a client, and that to the server.
type link struct {
	proxy  *proxy
	client *net.TCPConn
	reader *bufio.Reader // of the client

	mu     sync.Mutex // guards the fields below
	server *net.TCPConn
	budget int // bytes until the link is cut; -1 for no limit
	down   sync.WaitGroup
}

func newProxy(h *history) (*proxy, error) { return startProxy(&proxy{history: h}) }

func startProxy(p *proxy) (*proxy, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(p.host, "127.0.0.1"), "0"))
	if err != nil {
		return nil, err
	}
	p.listener, p.modeDone, p.links = listener, make(chan struct{}), map[*link]struct{}{}
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// close ends the proxy and waits for its goroutines.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.setMode(proxyMode{})
	p.reset()
	p.all.Wait()
}

// setTarget sets the addresses of the server. Open connections keep the former address until the next
// request, if there are several.
func (p *proxy) setTarget(addresses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = addresses
}

// dial connects to the next target that accepts a connection.
func (p *proxy) dial() (conn *net.TCPConn, err error) {
	p.mu.Lock()
	targets := p.targets
	p.last++
	first := p.last
	p.mu.Unlock()
	err = net.ErrClosed
	for i := range targets {
		if conn, err = dial(targets[(first+i)%len(targets)]); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (p *proxy) setMode(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.modeDone)
	p.modeDone = make(chan struct{})
	for l := range p.links {
		l.setBudget(m)
	}
}

// change changes the mode: two faults may be active at once.
func (p *proxy) change(f func(m *proxyMode)) {
	p.mu.Lock()
	m := p.mode
	p.mu.Unlock()
	f(&m)
	p.setMode(m)
}

// reset resets all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

func (p *proxy) current() (mode proxyMode, changed <-chan struct{}, targets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.modeDone, len(p.targets)
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{proxy: p, client: conn.(*net.TCPConn), reader: bufio.NewReader(conn), budget: -1}
		p.all.Go(l.run)
	}
}

// run connects a client to the server until one of them closes.
func (l *link) run() {
	defer l.client.Close()
	mode, _, _ := l.proxy.current()
	server, err := l.proxy.dial()
	if mode.refuse || err != nil {
		l.unavailable()
		if server != nil {
			_ = server.Close()
		}
		return
	}
	l.server = server
	defer func() { _ = l.current().Close() }()
	l.setBudget(mode)
	if !l.register() {
		return
	}
	defer l.unregister()
	l.startDown()
	if l.proxy.raw {
		l.copy(l.server, l.client, func(m proxyMode) bool { return m.stallUp })
	} else {
		l.copyUp()
	}
	_ = l.current().Close() // ends down
	l.down.Wait()
}

func (l *link) current() *net.TCPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// startDown copies responses until the server closes, which closes the connection of the client, or
// is replaced.
func (l *link) startDown() {
	server := l.current()
	l.down.Go(func() {
		var response responseEnd
		l.copy(io.MultiWriter(l.client, &response), server, func(m proxyMode) bool { return m.stallDown })
		if _, _, targets := l.proxy.current(); targets > 1 && response.complete() {
			return // the next request uses another server
		}
		if l.current() == server {
			_ = l.client.Close() // ends up
		}
	})
}

// next replaces the server by the next server. The response to the request before has been passed on.
func (l *link) next() bool {
	server, err := l.proxy.dial()
	if err != nil {
		return false
	}
	l.mu.Lock()
	old := l.server
	l.server = server
	l.mu.Unlock()
	_ = old.Close()
	l.down.Wait()
	l.startDown()
	return true
}

// unavailable refuses a connection: half of the time as a load balancer does that has no server, with
// a response, and else with a reset.
func (l *link) unavailable() {
	_ = l.client.SetDeadline(time.Now().Add(time.Second))
	if l.proxy.raw || rand.IntN(2) == 0 {
		_ = l.client.SetLinger(0)
		return
	}
	if _, _, err := readRequest(l.reader); err == nil {
		_, _ = io.WriteString(l.client, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"+
			"Connection: close\r\n\r\n")
	}
}

func dial(address string) (*net.TCPConn, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (l *link) register() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.closed {
		return false
	}
	l.proxy.links[l] = struct{}{}
	return true
}

func (l *link) unregister() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

// reset closes both connections with a TCP reset.
func (l *link) reset() {
	for _, conn := range []*net.TCPConn{l.client, l.current()} {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}

func (l *link) setBudget(m proxyMode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget = -1
	if m.cutAfter > 0 {
		l.budget = rand.IntN(m.cutAfter)
	}
}

// write writes as much as the link may carry, and resets it at the limit.
func (l *link) write(to io.Writer, data []byte) error {
	l.mu.Lock()
	part := data
	if l.budget >= 0 {
		part = data[:min(len(data), l.budget)]
		l.budget -= len(part)
	}
	l.mu.Unlock()
	_, err := to.Write(part)
	if len(part) < len(data) {
		l.reset()
		return net.ErrClosed
	}
	return err
}

// await waits while a direction is stalled.
func (l *link) await(stalled func(m proxyMode) bool) proxyMode {
	for {
		mode, changed, _ := l.proxy.current()
		if !stalled(mode) {
			return mode
		}
		<-changed
	}
}

// copy copies bytes in a single direction.
func (l *link) copy(to io.Writer, from io.Reader, stalled func(m proxyMode) bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		time.Sleep(l.await(stalled).delay)
		if n > 0 && l.write(to, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// copyUp copies the requests.
func (l *link) copyUp() {
	for first := true; ; first = false {
		raw, body, err := readRequest(l.reader)
		mode := l.await(func(m proxyMode) bool { return m.stallUp })
		if _, _, targets := l.proxy.current(); err == nil && !first && targets > 1 && !l.next() {
			_ = l.client.SetLinger(0)
			return
		}
		if err != nil {
			_ = l.write(l.current(), raw) // the part of a request
			return
		}
		isPost := bytes.HasPrefix(raw, []byte("POST "))
		if isPost && (mode.retry || mode.duplicate) {
			l.proxy.history.duplicated(string(body))
		}
		switch {
		case isPost && mode.retry:
			l.loseFirst(raw)
		case isPost && mode.duplicate:
			l.proxy.all.Go(func() { l.proxy.deliver(raw) })
		}
		if l.write(l.current(), raw) != nil {
			return
		}
	}
}

// deliver sends a request on a connection of its own and discards the response.
func (p *proxy) deliver(raw []byte) {
	conn, err := p.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(raw)
	_, _ = io.CopyN(io.Discard, conn, 1<<20)
}

// loseFirst does the first half of what a proxy does that retries: it sends the request on a
// connection that is cut before the response.
func (l *link) loseFirst(raw []byte) {
	conn, err := l.proxy.dial()
	if err != nil {
		return
	}
	_, _ = conn.Write(raw)
	time.Sleep(rand.N(20 * time.Millisecond)) // in which the server may read it
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// readRequest reads one request. raw is all that was read, also if there is an error.
func readRequest(r *bufio.Reader) (raw, body []byte, err error) {
	var all bytes.Buffer
	length := 0
	for {
		line, err := r.ReadBytes('\n')
		all.Write(line)
		if err != nil {
			return all.Bytes(), nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 && all.Len() > 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if http.CanonicalHeaderKey(string(name)) == "Content-Length" {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	body = make([]byte, length)
	n, err := io.ReadFull(r, body)
	all.Write(body[:n])
	return all.Bytes(), body, err
}

// A responseEnd finds the end of the only response on a connection.
type responseEnd struct {
	head []byte // until its end
	tail []byte // the last bytes of the body
	body int
}

func (e *responseEnd) Write(data []byte) (int, error) {
	n := len(data)
	if !bytes.Contains(e.head, headEnd) {
		e.head = append(e.head, data...)
		_, data, _ = bytes.Cut(e.head, headEnd)
		e.head = e.head[:len(e.head)-len(data)]
	}
	e.body += len(data)
	e.tail = append(e.tail, data...)
	e.tail = bytes.Clone(e.tail[max(0, len(e.tail)-len(lastChunk)):])
	return n, nil
}

var headEnd, lastChunk = []byte("\r\n\r\n"), []byte("0\r\n\r\n")

func (e *responseEnd) complete() bool {
	_, after, sized := bytes.Cut(e.head, []byte("Content-Length: "))
	length, _, _ := bytes.Cut(after, []byte("\r"))
	want, err := strconv.Atoi(string(length))
	switch {
	case !bytes.HasSuffix(e.head, headEnd):
		return false
	case sized:
		return err == nil && e.body == want
	case bytes.Contains(e.head, []byte("Transfer-Encoding: chunked")):
		return bytes.Equal(e.tail, lastChunk)
	}
	return bytes.HasPrefix(e.head, []byte("HTTP/1.1 204"))
}
