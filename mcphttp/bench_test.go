package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// benchConns is the number of connections of the load, each with one request at a time. The load writes
// and reads bytes without net/http, so that it uses little CPU time.
const benchConns = 8

const benchResponse = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",` +
	`"content":[{"type":"text","text":"hello"}]}}`

// bareHandler reads the body and writes a fixed response. It is the baseline of the benchmarks.
func bareHandler(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, 0, 4096)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err != nil {
			break
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(benchResponse)))
	_, _ = io.WriteString(w, benchResponse)
}

// cannedCore returns the same result for every request, so that the benchmarks measure the transport.
var cannedCore = mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "server/discover" {
		return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],` +
			`"capabilities":{"tools":{}}}`), nil
	}
	return mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"hello"}]}`), nil
})

const modernBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
	`{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

const sessionBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}`

// The benchmarks report the CPU time of the server for a call, for bareHandler and for Handler, in
// alternating rounds, and the ratio. Another process sends the load.
func BenchmarkModernJSON(b *testing.B) { compare(b, "modern") }

func BenchmarkSessionJSON(b *testing.B) { compare(b, "session") }

func benchRequest(kind, session string) []byte {
	if kind == "modern" {
		return rawPost(modernBody, "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n")
	}
	return rawPost(sessionBody, "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: "+session+"\r\n")
}

func rawPost(body, header string) []byte {
	return []byte("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\n" + header + "Content-Length: " + strconv.Itoa(len(body)) +
		"\r\n\r\n" + body)
}

func compare(b *testing.B, kind string) {
	const rounds = 10
	bare := listen(b, http.HandlerFunc(bareHandler))
	ours := listen(b, mcphttp.NewHandler(cannedCore, nil))
	var spent [2]time.Duration
	for range rounds {
		for i, addr := range []string{bare, ours} {
			load := exec.Command(os.Args[0])
			load.Env = append(os.Environ(), driveEnv+"="+kind+" "+addr+" "+strconv.Itoa(b.N/rounds+1))
			start := cpuTime()
			if out, err := load.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			spent[i] += cpuTime() - start
		}
	}
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N), "bare-cpu-ns/op")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N), "ours-cpu-ns/op")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// driveEnv makes the test binary send load instead of running tests. Its value is the kind, the address
// and the number of requests.
const driveEnv = "MCPHTTP_TEST_DRIVE"

// driveMain sends the load that spec describes.
func driveMain(spec string) error {
	var kind, addr string
	var n int
	if _, err := fmt.Sscan(spec, &kind, &addr, &n); err != nil {
		return err
	}
	return drive(kind, addr, n)
}

func listen(b *testing.B, h http.Handler) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	b.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// drive sends n requests over all connections.
func drive(kind, addr string, n int) error {
	var conns [benchConns]net.Conn
	for i := range conns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		conns[i] = conn
	}
	session, err := initializeRaw(conns[0])
	if err != nil {
		return err
	}
	request := benchRequest(kind, session)
	done := make(chan error)
	for _, conn := range conns {
		go func() { done <- exchangeRaw(conn, request, n/benchConns+1) }()
	}
	for range conns {
		err = errors.Join(err, <-done)
	}
	return err
}

func exchangeRaw(conn net.Conn, request []byte, n int) error {
	reader := bufio.NewReader(conn)
	for range n {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		status, length := "", 0
		for {
			line, err := reader.ReadSlice('\n')
			if err != nil {
				return err
			}
			if status == "" {
				status = string(line[9:12])
			}
			if len(line) > 16 && string(line[:16]) == "Content-Length: " {
				length, _ = strconv.Atoi(string(line[16 : len(line)-2]))
			}
			if len(line) == 2 {
				break
			}
		}
		if status != "200" {
			return fmt.Errorf("status %s", status)
		}
		if _, err := reader.Discard(length); err != nil {
			return err
		}
	}
	return nil
}

// initializeRaw opens a session and returns its id, which is empty for the bare handler.
func initializeRaw(conn net.Conn) (session string, err error) {
	const body = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"bench","version":"1"}}}`
	if _, err := conn.Write(rawPost(body, "")); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("Mcp-Session-Id"), err
}
