package main

import (
	"bufio"
	"bytes"
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
}

// A proxy is a TCP proxy in front of the server. It reads requests as a whole, so that it can
// deliver them twice, and copies responses byte by byte.
type proxy struct {
	listener net.Listener
	history  *history

	mu       sync.Mutex // guards the fields below
	target   string     // the address of the server; empty while there is none
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
	server *net.TCPConn
	budget int // bytes until the link is cut; -1 for no limit

	mu sync.Mutex // guards budget
}

func newProxy(h *history) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, history: h, modeDone: make(chan struct{}), links: map[*link]struct{}{}}
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

// setTarget sets the address of the server. Open connections keep the old one.
func (p *proxy) setTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
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

func (p *proxy) current() (mode proxyMode, changed <-chan struct{}, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.modeDone, p.target
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
	mode, _, target := l.proxy.current()
	server, err := dial(target)
	if mode.refuse || err != nil {
		l.unavailable()
		if server != nil {
			_ = server.Close()
		}
		return
	}
	l.server = server
	defer server.Close()
	l.setBudget(mode)
	if !l.register() {
		return
	}
	defer l.unregister()
	var down sync.WaitGroup
	down.Go(func() {
		l.copyDown(server)
		_ = l.client.Close() // ends up
	})
	l.copyUp()
	_ = server.Close() // ends down
	down.Wait()
}

// unavailable refuses a connection: half of the time as a load balancer does that has no server, with
// a response, and else with a reset.
func (l *link) unavailable() {
	_ = l.client.SetDeadline(time.Now().Add(time.Second))
	if rand.IntN(2) == 0 {
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
	for _, conn := range []*net.TCPConn{l.client, l.server} {
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

// copyDown copies the responses.
func (l *link) copyDown(from io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		l.await(func(m proxyMode) bool { return m.stallDown })
		if n > 0 && l.write(l.client, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// copyUp copies the requests.
func (l *link) copyUp() {
	for {
		raw, body, err := readRequest(l.reader)
		mode := l.await(func(m proxyMode) bool { return m.stallUp })
		if err != nil {
			_ = l.write(l.server, raw) // the part of a request
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
		if l.write(l.server, raw) != nil {
			return
		}
	}
}

// deliver sends a request on a connection of its own and discards the response.
func (p *proxy) deliver(raw []byte) {
	_, _, target := p.current()
	conn, err := dial(target)
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
	_, _, target := l.proxy.current()
	conn, err := dial(target)
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
