package mcphttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// cannedEnv makes the test binary the server of the client benchmarks, so that the CPU time of this
// process is that of the client alone.
const cannedEnv = "MCPHTTP_TEST_CANNED"

// TestCannedServer is that server. It is skipped otherwise.
func TestCannedServer(t *testing.T) {
	if os.Getenv(cannedEnv) == "" {
		t.Skip("the server of the benchmarks")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("address", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the benchmark
		l.Close()
	}()
	_ = http.Serve(l, http.HandlerFunc(canned))
}

// canned writes a fixed response with the id of the request.
func canned(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := bytes.Cut(body, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(`,`))
	result := `{"resultType":"complete","content":[{"type":"text","text":"hello"}]}`
	switch {
	case bytes.Contains(body, []byte(`"server/discover"`)):
		result = `{"resultType":"complete","supportedVersions":["` + modern +
			`"],"capabilities":{"tools":{}},"serverInfo":{"name":"canned","version":"1"}}`
	case bytes.Contains(body, []byte(`"initialize"`)):
		w.Header().Set("Mcp-Session-Id", "canned")
		result = `{"protocolVersion":"` + november2025 +
			`","capabilities":{"tools":{}},"serverInfo":{"name":"canned","version":"1"}}`
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case bytes.Contains(body, []byte(`"notifications/`)):
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	if r.URL.Path == "/sse" {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	_, _ = w.Write(answer)
}

func cannedServer(b *testing.B) (address string) {
	server := exec.Command(os.Args[0], "-test.run=^TestCannedServer$")
	server.Env = append(os.Environ(), cannedEnv+"=1")
	stdin, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		server.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "address ")
}

// The benchmarks report the CPU time of the client for a call, for net/http alone and for Transport, in
// alternating rounds, and the ratio.
func BenchmarkClientModernJSON(b *testing.B) { compareClients(b, "/json", modernCaller) }

func BenchmarkClientModernSSE(b *testing.B) { compareClients(b, "/sse", modernCaller) }

func BenchmarkClientSessionJSON(b *testing.B) { compareClients(b, "/json", sessionCaller) }

func compareClients(b *testing.B, path string, ours func(b *testing.B, url string) func()) {
	const rounds, workers = 20, 8
	url := "http://" + cannedServer(b) + path
	clients := []func(){bareCaller(b, url), ours(b, url)}
	var spent [2]time.Duration
	for range rounds {
		for i, call := range clients {
			start := cpuTime()
			var done sync.WaitGroup
			for range workers {
				done.Go(func() {
					for range b.N/rounds/workers + 1 {
						call()
					}
				})
			}
			done.Wait()
			spent[i] += cpuTime() - start
		}
	}
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N), "bare-cpu-ns/op")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N), "ours-cpu-ns/op")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// bareCaller posts the same bytes with net/http alone, and reads the response.
func bareCaller(b *testing.B, url string) func() {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport}
	b.Cleanup(transport.CloseIdleConnections)
	return func() {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(modernBody))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Protocol-Version", modern)
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "echo")
		res, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || !bytes.Contains(body, []byte("hello")) {
			panic(fmt.Sprint(string(body), err))
		}
	}
}

func modernCaller(b *testing.B, url string) func() {
	tr := mcphttp.NewTransport(url, nil)
	b.Cleanup(func() { tr.Close() })
	m, err := jsonrpc.Decode([]byte(modernBody))
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		req, err := mcp.NewRequest(m)
		if err != nil {
			panic(err)
		}
		res, err := tr.RoundTrip(ctx, req)
		if err != nil || !bytes.Contains(res.(mcp.RawResult), []byte("hello")) {
			panic(fmt.Sprint(res, err))
		}
	}
}

func sessionCaller(b *testing.B, url string) func() {
	tr := mcphttp.NewTransport(url, nil)
	conn, err := tr.OpenSession(b.Context(), func(*jsonrpc.Message) {})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tr.Close() })
	params := []byte(modernBody[strings.Index(modernBody, `{"name":"echo"`) : len(modernBody)-1])
	return func() {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		m, err := conn.RoundTrip(ctx, &jsonrpc.Message{Method: "tools/call", Params: params})
		if err != nil || !bytes.Contains(m.Result, []byte("hello")) {
			panic(fmt.Sprint(m, err))
		}
	}
}

// The benchmarks below report time and allocations of sequential calls of an mcp.Client.
func BenchmarkCallBare(b *testing.B) {
	call := bareCaller(b, "http://"+cannedServer(b)+"/json")
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

func BenchmarkCallModern(b *testing.B) { benchmarkCall(b, "/json", modern) }

func BenchmarkCallModernSSE(b *testing.B) { benchmarkCall(b, "/sse", modern) }

func BenchmarkCallSession(b *testing.B) { benchmarkCall(b, "/json", november2025) }

func BenchmarkCallSessionSSE(b *testing.B) { benchmarkCall(b, "/sse", november2025) }

func benchmarkCall(b *testing.B, path, revision string) {
	c, err := mcp.Connect(b.Context(), mcphttp.NewTransport("http://"+cannedServer(b)+path, nil),
		&mcp.ClientOptions{Revision: revision})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	arguments := map[string]any{"message": "hello"}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if got, err := mcp.CallTool[string](ctx, c, "echo", arguments); err != nil || got != "hello" {
			b.Fatal(got, err)
		}
	}
}
