package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Parameters of the load test.
const (
	hostileCallers = 2000
	hostilePause   = time.Second // between two attacks of one caller
	loadTime       = 8 * time.Second
	principalCalls = 1000 // to measure, at most
)

// A load is a server with default limits under attack.
type load struct {
	t       *testing.T
	ctx     context.Context
	address string
	era     string
	listen  string // a request for a stream or a subscription with a large filter
	upload  string // a request whose body is not complete

	mu       sync.Mutex // guards the fields below
	statuses map[int]int
	failed   int // connections that broke
}

// The limits keep the latency of a principal and the memory of a server while anonymous callers
// attack it. The test logs the figures.
func TestLoad_HostileAnonymousCallersAndOnePrincipal(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("takes 20 seconds, and measures time")
	}
	for _, era := range []string{"session", "modern"} {
		t.Run(era, func(t *testing.T) {
			l := &load{t: t, era: era, statuses: map[int]int{}}
			stop := l.serve()
			defer stop()
			l.prepare()
			call := l.principal()
			quiet := measure(t, call, 2*time.Second)
			before := heapInUse()
			attacks, endAttacks := context.WithCancel(t.Context())
			l.ctx = attacks
			var running sync.WaitGroup
			for i := range hostileCallers {
				running.Go(func() { l.attack(i) })
			}
			var peak atomic.Uint64
			running.Go(func() {
				for sleep(attacks, 20*time.Millisecond) {
					peak.Store(max(peak.Load(), heapBytes()))
				}
			})
			sleep(t.Context(), 3*time.Second) // until the limits are reached
			loaded := measure(t, call, loadTime)
			endAttacks()
			running.Wait()
			t.Logf("%s: quiet p50 %v p99 %v; loaded p50 %v p99 %v (%.1f times); heap before %d MiB, peak %d MiB",
				era, quiet.p50, quiet.p99, loaded.p50, loaded.p99, float64(loaded.p99)/float64(quiet.p99),
				before>>20, peak.Load()>>20)
			for _, status := range slices.Sorted(maps.Keys(l.statuses)) {
				t.Logf("%s: status %d: %d", era, status, l.statuses[status])
			}
			t.Logf("%s: connections that broke: %d", era, l.failed)
		})
	}
}

// serve serves the tools that the callers use.
func (l *load) serve() (stop func()) {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return "hi", nil })
	large := strings.Repeat("x", 1<<20)
	mcp.AddTool(server, &mcp.Tool{Name: "large"}, func(context.Context, struct{}) (string, error) { return large, nil })
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		sleep(ctx, 10*time.Second)
		return "", nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.address = listener.Addr().String()
	h := mcphttp.NewHandler(server, &mcphttp.Options{Logger: discardLogger})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = mcphttp.Serve(ctx, listener, "/mcp", h, asPrincipal)
	}()
	return func() { cancel(); <-done }
}

// request returns a call of a tool in the era of the load.
func (l *load) request(tool, session string) string {
	body, headers := callBody(1, tool), []string{"Mcp-Session-Id: " + session}
	if l.era == "modern" {
		body, headers = modernCall("tools/call", fmt.Sprintf(`"name":%q,"arguments":{}`, tool))
	} else {
		body = strings.Replace(body, `{"message":"hi"}`, `{}`, 1)
	}
	return l.post(body, len(body), headers...)
}

func (l *load) post(body string, length int, headers ...string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n%s",
		l.address, length, lines(headers), body)
}

// prepare builds the large requests, so that the attackers use little of the processor.
func (l *load) prepare() {
	l.listen = "GET /mcp HTTP/1.1\r\nHost: " + l.address + "\r\nAccept: text/event-stream\r\n\r\n"
	if l.era == "modern" {
		pad := strings.Repeat("x", 300<<10)
		body, headers := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},"x":"`+pad+`"`)
		l.listen = l.post(body, len(body), headers...)
	}
	l.upload = l.post("{"+strings.Repeat(" ", 300<<10), 1<<20)
}

func lines(headers []string) (lines string) {
	for _, h := range headers {
		lines += h + "\r\n"
	}
	return lines
}

// principal returns a function that makes one call of an authenticated principal.
func (l *load) principal() func() error {
	conn, err := net.Dial("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	reader, session := bufio.NewReader(conn), ""
	exchange := func(request string) (*http.Response, error) {
		request = strings.Replace(request, "\r\n", "\r\nAuthorization: ann\r\n", 1)
		if _, err := io.WriteString(conn, request); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != 200 || strings.Contains(string(body), `"error"`)) {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
		}
		return resp, err
	}
	if l.era == "session" {
		body := initializeBody(november2025)
		resp, err := exchange(l.post(body, len(body)))
		if err != nil {
			l.t.Fatal(err)
		}
		session = resp.Header.Get("Mcp-Session-Id")
	}
	return func() error {
		_, err := exchange(l.request("echo", session))
		return err
	}
}

// attack runs one hostile caller, of a kind that depends on its number.
func (l *load) attack(i int) {
	sleep(l.ctx, hostilePause*time.Duration(i)/hostileCallers)
	for l.ctx.Err() == nil {
		begin := time.Now()
		if err := l.attackOnce(i % 5); err != nil {
			l.mu.Lock()
			l.failed++
			l.mu.Unlock()
		}
		sleep(l.ctx, hostilePause-time.Since(begin))
	}
}

func (l *load) attackOnce(kind int) error {
	conn, err := net.Dial("tcp", l.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(l.ctx, func() { conn.Close() })()
	reader, session := bufio.NewReader(conn), ""
	if l.era == "session" && kind != 1 && kind != 2 {
		body := initializeBody(november2025)
		resp, err := l.send(conn, reader, l.post(body, len(body)))
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
		_, err = l.send(conn, reader, l.request("echo", ""))
		return err
	case 1: // a stream or a subscription, with a large filter
		_, err = l.send(conn, reader, l.listen)
		_, _ = io.Copy(io.Discard, reader)
		return err
	case 2: // a slow body
		go func() { // ends with the connection
			if _, err := io.WriteString(conn, l.upload); err != nil {
				return
			}
			for sleep(l.ctx, time.Second) {
				if _, err := io.WriteString(conn, " "); err != nil {
					return
				}
			}
		}()
		_, err = l.send(conn, reader, "")
		return err
	case 3: // a large response that is not read
		if _, err := io.WriteString(conn, l.request("large", session)); err != nil {
			return err
		}
		sleep(l.ctx, 20*time.Second)
		return nil
	default: // a call that waits
		_, err = l.send(conn, reader, l.request("wait", session))
		return err
	}
}

// send sends a request and counts the status of the response.
func (l *load) send(conn net.Conn, reader *bufio.Reader, request string) (*http.Response, error) {
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil, nil
		}
		return nil, err
	}
	l.mu.Lock()
	l.statuses[resp.StatusCode]++
	l.mu.Unlock()
	return resp, nil
}

type latencies struct{ p50, p99 time.Duration }

// measure calls repeatedly, with pauses, and returns the latencies.
func measure(t *testing.T, call func() error, d time.Duration) latencies {
	t.Helper()
	var took []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end) && len(took) < principalCalls; {
		begin := time.Now()
		if err := call(); err != nil {
			t.Fatalf("call of the principal: %v", err)
		}
		took = append(took, time.Since(begin))
		sleep(t.Context(), 2*time.Millisecond)
	}
	slices.Sort(took)
	return latencies{took[len(took)/2], took[len(took)*99/100]}
}

// sleep waits, and reports whether the context has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// heapBytes returns the size of the objects on the heap, without stopping the program.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
