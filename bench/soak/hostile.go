package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The hostile clients, 5 % of all.
const (
	hostileHTTP   = 8
	hostileStdio  = 1
	hostileMemory = 1

	attackPause = 700 * time.Millisecond
	stdioPause  = 4 * time.Second
	floodSize   = 50
	// exitTime is how long a server on stdio needs if the machine is not busy.
	exitTime = 3 * time.Second
)

// A hostileClient attacks until its context ends. Nothing is expected of the answers; the other
// clients must not notice it, and nothing may be kept.
type hostileClient struct {
	soak *soak
	id   int
}

func (h *hostileClient) run(ctx context.Context, pause time.Duration, attack func(context.Context)) {
	for sleep(ctx, pause/2+rand.N(pause)) == nil {
		h.soak.gate.RLock()
		attack(ctx)
		h.soak.gate.RUnlock()
		h.soak.results.attacks.Add(1)
	}
}

// requestHeader returns the header of an HTTP request. Half of the attacks are anonymous.
func (h *hostileClient) requestHeader(method string, length int, lines ...string) string {
	h.soak.results.requests.Add(1)
	if h.id%2 == 0 {
		lines = append(lines, fmt.Sprintf("Authorization: hostile%d", h.id))
	}
	return fmt.Sprintf("%s /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n\r\n",
		method, h.soak.server.address, length, strings.Join(lines, "\r\n"))
}

func (h *hostileClient) post(body string, lines ...string) string {
	return h.requestHeader("POST", len(body), append(lines, "X-Soak: 1")...) + body
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"hostile","version":"0"}}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"hostile","version":"0"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
)

func modernCall(tool, args string) (body string, lines []string) {
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`,
		tool, args, modernMeta)
	return body, []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: " + tool}
}

// attackHTTP makes one attack on the endpoint.
func (h *hostileClient) attackHTTP(ctx context.Context) {
	conn, err := net.DialTimeout("tcp", h.soak.server.address, time.Second)
	if err != nil {
		return // it is being restarted
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	attacks := []func(context.Context, net.Conn){
		h.flood, h.openSessions, h.halfBody, h.unread, h.dropStream, h.garbage, h.manyHeaders, h.dropCalls,
	}
	attacks[rand.IntN(len(attacks))](ctx, conn)
	if tcp, ok := conn.(*net.TCPConn); ok && rand.IntN(2) == 0 {
		_ = tcp.SetLinger(0) // a reset
	}
}

// flood sends many bad requests and reads some of the answers.
func (h *hostileClient) flood(_ context.Context, conn net.Conn) {
	bad := []string{
		`{`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, `{"jsonrpc":"1.0","id":1}`, `nonsense`,
		strings.Repeat("[", 1000), `{"jsonrpc":"2.0","id":{},"method":"ping"}`, initialize[:40],
	}
	reader := bufio.NewReader(conn)
	for range floodSize {
		if _, err := io.WriteString(conn, h.post(bad[rand.IntN(len(bad))])); err != nil {
			return
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// openSessions opens sessions that are never used.
func (h *hostileClient) openSessions(_ context.Context, conn net.Conn) {
	for range floodSize {
		if _, err := io.WriteString(conn, h.post(initialize)); err != nil {
			return
		}
	}
	_, _ = io.CopyN(io.Discard, conn, 4<<10)
}

// halfBody sends a part of a large body.
func (h *hostileClient) halfBody(ctx context.Context, conn net.Conn) {
	_, _ = io.WriteString(conn, h.requestHeader("POST", 1<<20)+`{"jsonrpc":`+strings.Repeat(" ", rand.IntN(200<<10)))
	_ = sleep(ctx, rand.N(300*time.Millisecond))
}

// unread asks for many large answers and reads none. One connection of twenty stays, so that
// the server has to give it up.
func (h *hostileClient) unread(ctx context.Context, conn net.Conn) {
	body, lines := modernCall("large", `{"nonce":"unread"}`)
	_, _ = io.WriteString(conn, strings.Repeat(h.post(body, lines...), 30))
	if rand.IntN(20) > 0 {
		_ = sleep(ctx, rand.N(300*time.Millisecond))
		return
	}
	kept, err := net.DialTimeout("tcp", h.soak.server.address, time.Second)
	if err != nil {
		return
	}
	_ = kept.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(kept, strings.Repeat(h.post(body, lines...), 100))
	h.soak.kept.add(kept)
}

// keptConns are connections whose answers are not read until the next quiet point. Most of them last
// until the server gives up.
type keptConns struct {
	mu    sync.Mutex // guards the field below
	conns []net.Conn
}

func (k *keptConns) add(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns = append(k.conns, c)
}

func (k *keptConns) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		_ = c.Close()
	}
	k.conns = nil
}

// dropStream opens a stream and disappears.
func (h *hostileClient) dropStream(ctx context.Context, conn net.Conn) {
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` +
		modernMeta + `}}`
	request := h.post(body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
	if rand.IntN(2) == 0 {
		request = h.requestHeader("GET", 0, "X-Soak: 1") // HTTP+SSE
	}
	_, _ = io.WriteString(conn, request)
	_ = sleep(ctx, rand.N(200*time.Millisecond))
}

func (h *hostileClient) garbage(_ context.Context, conn net.Conn) {
	text := make([]byte, 64<<10)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	_, _ = conn.Write(text)
	_, _ = io.CopyN(io.Discard, conn, 100)
}

func (h *hostileClient) manyHeaders(_ context.Context, conn net.Conn) {
	lines := make([]string, 200)
	for i := range lines {
		lines[i] = fmt.Sprintf("Mcp-Param-%d: %s", i, strings.Repeat("x", 300))
	}
	_, _ = io.WriteString(conn, h.post(initialize, lines...))
	_, _ = io.CopyN(io.Discard, conn, 100)
}

// dropCalls starts calls and disappears.
func (h *hostileClient) dropCalls(ctx context.Context, conn net.Conn) {
	tools := []string{"slow", "stream", "ask"}
	tool := tools[rand.IntN(len(tools))]
	body, lines := modernCall(tool, `{"nonce":"dropped","events":100,"close":false}`)
	if tool != "stream" {
		body, lines = modernCall(tool, `{"nonce":"dropped"}`)
	}
	_, _ = io.WriteString(conn, h.post(body, lines...))
	_ = sleep(ctx, rand.N(100*time.Millisecond))
}

// attackStdio sends garbage to a server on stdio, which must still answer, and then exit when its
// input ends in the middle of a message.
func (h *hostileClient) attackStdio(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, h.soak.program)
	cmd.Env = append(os.Environ(), roleVariable+"=stdio")
	in, err := cmd.StdinPipe()
	if err == nil {
		stacks := &strings.Builder{} // of a server that does not exit
		cmd.Stdout, cmd.Stderr = &answers{}, stacks
		cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }, time.Second
		err = cmd.Start()
	}
	if err != nil {
		h.soak.fail("hostile stdio: %v", err)
		return
	}
	lines := []string{"garbage", "{", "[[[", `{"jsonrpc":"2.0"}`, "\x00\xff", strings.Repeat("y", 1<<20)}
	for range floodSize {
		h.soak.results.requests.Add(1)
		_, _ = io.WriteString(in, lines[rand.IntN(len(lines))]+"\n")
	}
	_, _ = io.WriteString(in, initialize+"\n")
	_, _ = io.WriteString(in, strings.Replace(initialize, `"id":1`, `"id":2`, 1)[:60])
	_ = in.Close()
	err = cmd.Wait()
	took := time.Since(began)
	switch {
	case ctx.Err() != nil:
		h.soak.fail("hostile stdio: the server does not exit: %v\n%v", err, cmd.Stderr)
	case h.soak.stalls.since(began) || took > exitTime: // the server stops waiting for requests 3 s after the input
	case err != nil || !cmd.Stdout.(*answers).initialized:
		h.soak.fail("hostile stdio: no answer to initialize after garbage, in %v: %v", took, err)
	}
}

// answers reads the output of a server.
type answers struct {
	end         string
	initialized bool
}

func (a *answers) Write(p []byte) (int, error) {
	a.end += string(p)
	a.initialized = a.initialized || strings.Contains(a.end, `"serverInfo"`)
	a.end = a.end[max(0, len(a.end)-100):]
	return len(p), nil
}

// attackMemory opens a session in memory, makes calls without reading the answers, and closes it.
func (h *hostileClient) attackMemory(ctx context.Context) {
	near, far := mcp.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = mcp.Serve(ctx, h.soak.memory.Load(), far, &mcp.ServeOptions{Logger: newLogger(), Drain: time.Millisecond})
	}()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	calls := []string{initialize, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`}
	for i := range 3 * floodSize {
		tool := []string{"large", "slow", "stream", "none"}[rand.IntN(4)]
		calls = append(calls, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,`+
			`"arguments":{"nonce":"unread"}}}`, 10+i, tool))
	}
	for _, text := range calls {
		h.soak.results.requests.Add(1)
		m, err := jsonrpc.Decode([]byte(text))
		if err != nil {
			h.soak.fail("hostile: %v", err)
		} else if near.Write(short, m) != nil {
			break
		}
	}
	_ = near.Close()
	select {
	case <-served:
	case <-time.After(callTimeout):
		h.soak.fail("hostile in-memory: Serve does not return after its client is gone")
	}
}
