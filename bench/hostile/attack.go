//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A requests builds the requests of one era.
type requests struct {
	address, era string
	listen       string // a request for a stream or a subscription with a large filter
	upload       string // a request whose body is not complete
}

const revision2025, revision2026 = "2025-11-25", "2026-07-28"

func newRequests(address, era string) *requests {
	r := &requests{address: address, era: era}
	r.listen = "GET /mcp?listen HTTP/1.1\r\nHost: " + address + "\r\nAccept: text/event-stream\r\n\r\n"
	if era != "session" {
		pad := strings.Repeat("x", 300<<10)
		r.listen = r.modern("listen", "subscriptions/listen", `"notifications":{"toolsListChanged":true},"x":"`+pad+`"`)
	}
	r.upload = r.post("", "{"+strings.Repeat(" ", 300<<10), 1<<20)
	return r
}

func (r *requests) post(query, body string, length int, headers ...string) string {
	var lines strings.Builder
	for _, h := range headers {
		lines.WriteString(h + "\r\n")
	}
	return fmt.Sprintf("POST /mcp?%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n%s",
		query, r.address, length, lines.String(), body)
}

func (r *requests) modern(query, method, params string, headers ...string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		method, params, revision2026)
	headers = append(headers, "MCP-Protocol-Version: "+revision2026, "Mcp-Method: "+method)
	return r.post(query, body, len(body), headers...)
}

// call returns a call of a tool.
func (r *requests) call(tool, session string, headers ...string) string {
	if r.era != "session" {
		return r.modern(tool, "tools/call", fmt.Sprintf(`"name":%q,"arguments":{}`, tool), append(headers, "Mcp-Name: "+tool)...)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
	return r.post(tool, body, len(body), append(headers, "Mcp-Session-Id: "+session)...)
}

func (r *requests) initialize(headers ...string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, revision2025)
	return r.post("", body, len(body), headers...)
}

// An attack is the process of all hostile callers.
type attack struct {
	ctx   context.Context
	pause time.Duration
	*requests

	mu      sync.Mutex // guards the fields below
	figures attackFigures
}

func runAttack(ctx context.Context, name, address string, callers int, pause time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a := &attack{ctx: ctx, pause: pause, requests: newRequests(address, name), figures: attackFigures{Statuses: map[int]int{}}}
	for i := range callers {
		go a.repeat(i, callers) // ends with the process
	}
	return answerLines("", func(string) (any, error) {
		stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.figures, nil
	})
}

// repeat is one hostile caller, of a kind that depends on its number.
func (a *attack) repeat(i, callers int) {
	sleep(a.ctx, a.pause*time.Duration(i)/time.Duration(callers))
	once := a.newCaller(i)
	for a.ctx.Err() == nil {
		begin := time.Now()
		if err := once(); err != nil && a.ctx.Err() == nil {
			a.mu.Lock()
			a.figures.Broken++
			a.mu.Unlock()
		}
		sleep(a.ctx, a.pause-time.Since(begin))
	}
}

// newCaller returns the function that is one attack of a caller.
func (a *attack) newCaller(i int) (once func() error) {
	n := 0
	switch a.era {
	case "authserver":
		b := newBrowser(a.address, byte(1+i>>8), byte(i), 1)
		return func() error {
			n++
			status, err := a.attackAuthorization(b, i, i<<16+n)
			if status != 0 {
				a.count(status)
			}
			return err
		}
	case "introspection":
		return func() error {
			n++
			return a.attackToken(fmt.Sprintf("invalid-%d-%d", i, n))
		}
	}
	return func() error { return a.attackMCP(i % 5) }
}

// attackToken sends a call with an invalid token.
func (a *attack) attackToken(token string) error {
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { conn.Close() })()
	resp, err := a.send(conn, bufio.NewReader(conn), a.call("echo", "", "Authorization: Bearer "+token))
	if resp != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return err
}

func (a *attack) attackMCP(kind int) error {
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { conn.Close() })()
	reader, session := bufio.NewReader(conn), ""
	if a.era == "session" && kind != 1 && kind != 2 {
		resp, err := a.send(conn, reader, a.initialize())
		if err != nil {
			return err
		}
		if resp == nil {
			return nil // the attacks are over
		}
		session = resp.Header.Get("Mcp-Session-Id")
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 200 || kind == 0 { // a session that is never used
			return nil
		}
	}
	switch kind {
	case 0:
		_, err = a.send(conn, reader, a.call("echo", ""))
		return err
	case 1: // a stream or a subscription, with a large filter
		_, err = a.send(conn, reader, a.listen)
		_, _ = io.Copy(io.Discard, reader)
		return err
	case 2: // a slow body
		go a.drip(conn)
		_, err = a.send(conn, reader, "")
		return err
	case 3: // a large response that is not read
		if _, err := io.WriteString(conn, a.call("large", session)); err != nil {
			return err
		}
		sleep(a.ctx, 20*time.Second)
		return nil
	default: // a call that waits
		_, err = a.send(conn, reader, a.call("wait", session))
		return err
	}
}

// drip sends an incomplete body, and then one byte in each second until the connection ends.
func (a *attack) drip(conn net.Conn) {
	if _, err := io.WriteString(conn, a.upload); err != nil {
		return
	}
	for sleep(a.ctx, time.Second) {
		if _, err := io.WriteString(conn, " "); err != nil {
			return
		}
	}
}

// send sends a request and counts the status of the response, which is nil after the attacks.
func (a *attack) send(conn net.Conn, reader *bufio.Reader, request string) (*http.Response, error) {
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		if a.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil, nil
		}
		return nil, err
	}
	a.count(resp.StatusCode)
	return resp, nil
}

func (a *attack) count(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.figures.Statuses[status]++
}
