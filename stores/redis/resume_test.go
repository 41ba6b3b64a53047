package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// sessionVersions are the revisions whose streams can be resumed.
var sessionVersions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

// serveEnv is set in a process that serves MCP instead of running tests. It contains the URL of Redis and
// the prefix of the keys.
const serveEnv = "PATCHBAY_TEST_SERVE"

// newWaiting returns a handler whose tool "wait" reports progress and then waits for a message on the topic
// "release".
func newWaiting(store *redis.Store) *mcphttp.Handler {
	server := mcp.NewServer("waiting", "1.0.0", nil)
	tool := &mcp.Tool{Name: "wait", Description: "Wait"}
	mcp.AddTool(server, tool, func(ctx context.Context, _ struct{}) (string, error) {
		released := make(chan struct{}, 1)
		stop, err := store.Bus().Subscribe(ctx, "release", func([]byte) {
			select {
			case released <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return "", err
		}
		defer stop()
		mcp.Progress(ctx, 1, 2, "waiting")
		select {
		case <-released:
			return "released", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return mcphttp.NewHandler(server, &mcphttp.Options{Sessions: mcphttp.SessionOptions{
		Store: store.Sessions(), Bus: store.Bus(), Events: store.Events()}})
}

// serveMain serves a waiting handler until the process is killed or its input ends. It writes its address.
func serveMain(spec string) error {
	redisURL, prefix, _ := strings.Cut(spec, " ")
	store, err := redis.Open(context.Background(), redisURL, &redis.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		return err
	}
	defer store.Close()
	server := httptest.NewServer(newWaiting(store))
	defer server.Close()
	fmt.Println(server.URL)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startProcess starts a process that serves a waiting handler. It returns the address and a function that
// kills the process.
func startProcess(t *testing.T, redisURL, prefix string) (address string, kill func()) {
	t.Helper()
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), serveEnv+"="+redisURL+" "+prefix)
	p.Stderr = os.Stderr
	stdin, err1 := p.StdinPipe()
	stdout, err2 := p.StdoutPipe()
	must(t, errors.Join(err1, err2, p.Start()))
	kill = sync.OnceFunc(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		_ = stdin.Close()
	})
	t.Cleanup(kill)
	_, err := fmt.Fscanln(stdout, &address)
	must(t, err)
	return address, kill
}

// A balancer sends requests to the first address. It breaks the connection of a call after the first progress
// notification, and sends later requests to the second address.
type balancer struct {
	addresses [2]string
	isBroken  atomic.Bool
	broke     func() // called after the connection broke
	resumed   func() // called after the second address resumed the stream
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	isCall := false
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		isCall = bytes.Contains(body, []byte("tools/call"))
	}
	address := b.addresses[0]
	if b.isBroken.Load() {
		address = b.addresses[1]
	}
	r.URL.Host = strings.TrimPrefix(address, "http://")
	r.Host = r.URL.Host
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && isCall {
		resp.Body = &breakingBody{ReadCloser: resp.Body, of: b}
	}
	if err == nil && r.Header.Get("Last-Event-ID") != "" {
		b.resumed()
	}
	return resp, err
}

// A breakingBody fails after the first progress notification.
type breakingBody struct {
	io.ReadCloser
	seen []byte
	of   *balancer
}

func (b *breakingBody) Read(p []byte) (int, error) {
	if bytes.Contains(b.seen, []byte("notifications/progress")) && bytes.HasSuffix(b.seen, []byte("\n\n")) {
		_ = b.Close()
		b.of.isBroken.Store(true)
		b.of.broke()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p)
	b.seen = append(b.seen, p[:n]...)
	return n, err
}

// callWait calls the tool "wait" at the first address, and resumes the call at the second address.
func callWait(t *testing.T, version string, broke, resumed func(), addresses ...string) (*mcp.CallToolResult, error) {
	t.Helper()
	http := &http.Client{Transport: &balancer{addresses: [2]string(addresses), broke: broke, resumed: resumed}}
	client, err := mcp.Connect(t.Context(), mcphttp.NewTransport(addresses[0], &mcphttp.TransportOptions{Client: http}),
		&mcp.ClientOptions{Revision: version})
	must(t, err)
	defer func() { must(t, client.Close()) }()
	opts := mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}, Timeout: time.Minute}
	ctx := mcp.WithCallOptions(t.Context(), opts)
	return client.CallTool(ctx, "wait", nil)
}

// serveWaiting serves a waiting handler in this process.
func serveWaiting(t *testing.T, store *redis.Store) (address string) {
	t.Helper()
	h := newWaiting(store)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		must(t, h.Shutdown(context.Background()))
		server.Close()
	})
	return server.URL
}

// A client whose connection breaks resumes its call at another process and gets the response of the process that
// runs the call.
func TestCallIsResumedAtAnotherProcess(t *testing.T) {
	for _, version := range sessionVersions {
		t.Run(version, func(t *testing.T) {
			a, b := openTwo(t)
			release := func() {
				if n, err := b.Bus().Publish(context.Background(), "release", []byte("now")); n == 0 || err != nil {
					t.Errorf("the release reached %d processes: %v", n, err)
				}
			}
			result, err := callWait(t, version, func() {}, release, serveWaiting(t, a), serveWaiting(t, b))
			must(t, err)
			if text := result.Content[0].(*mcp.TextContent).Text; text != "released" {
				t.Errorf("got %q", text)
			}
		})
	}
}

// While Redis is down, a followed stream ends and cannot be resumed. When Redis is back, the client resumes the
// stream and gets the response.
func TestCallIsResumedAfterARestartOfTheServer(t *testing.T) {
	server := startServer(t)
	a, b := open(t, server.url(), nil), open(t, server.url(), nil)
	var restart sync.Once
	resumed := func() {
		restart.Do(func() {
			server.kill()
			time.AfterFunc(5*time.Second, func() { // the report of lost messages releases the call
				if err := server.start(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	result, err := callWait(t, "2025-11-25", func() {}, resumed, serveWaiting(t, a), serveWaiting(t, b))
	must(t, err)
	if text := result.Content[0].(*mcp.TextContent).Text; text != "released" {
		t.Errorf("got %q", text)
	}
}

// After kill -9 of the process that runs a call, the client gets an error that the call may have run.
func TestCallOfAKilledProcess(t *testing.T) {
	for _, version := range sessionVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			opts := calm()
			opts.Prefix = fmt.Sprint("test", prefixes.Add(1))
			killed, kill := startProcess(t, need(t).url(), opts.Prefix)
			_, err := callWait(t, version, kill, func() {}, killed, serveWaiting(t, open(t, need(t).url(), opts)))
			e, ok := errors.AsType[*mcp.Error](err)
			if !ok || !strings.Contains(e.Message, "may have run") || !e.Remote() {
				t.Errorf("the call returned %v, want an error of the server that it may have run", err)
			}
		})
	}
}

// apart sends each message of HTTP+SSE to the next address, and each GET to the first. It refuses Streamable
// HTTP, as a server of 2024-11-05.
type apart struct {
	addresses []string
	requests  atomic.Int64
}

func (a *apart) RoundTrip(r *http.Request) (*http.Response, error) {
	n := 0
	switch {
	case strings.Contains(r.URL.RawQuery, "sessionId="):
		n = int(a.requests.Add(1)) % len(a.addresses)
	case r.Method == http.MethodPost:
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: r}, nil
	}
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(a.addresses[n], "http://")
	r.Host = r.URL.Host
	return http.DefaultTransport.RoundTrip(r)
}

// A client of HTTP+SSE needs no sticky session.
func TestMessagesOfHTTPSSEAtOtherProcesses(t *testing.T) {
	a, b := openTwo(t)
	requests := &apart{addresses: []string{serveWaiting(t, a), serveWaiting(t, b)}}
	transport := mcphttp.NewTransport(requests.addresses[0],
		&mcphttp.TransportOptions{Client: &http.Client{Transport: requests}})
	client, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: "2024-11-05"})
	must(t, err)
	defer func() { must(t, client.Close()) }()
	for n := range 10 {
		progress := make(chan struct{}, 1)
		go func() {
			<-progress
			if receivers, err := b.Bus().Publish(context.Background(), "release", nil); receivers == 0 || err != nil {
				t.Errorf("the release reached %d processes: %v", receivers, err)
			}
		}()
		opts := mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { progress <- struct{}{} }, Timeout: time.Minute}
		result, err := client.CallTool(mcp.WithCallOptions(t.Context(), opts), "wait", nil)
		must(t, err)
		if text := result.Content[0].(*mcp.TextContent).Text; text != "released" {
			t.Errorf("call %d: got %q", n, text)
		}
	}
	if requests.requests.Load() < 10 {
		t.Errorf("the client sent %d messages, want the calls", requests.requests.Load())
	}
}
