package authserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A page of the web whose name was pointed at a loopback address must not share an origin with a
// server there.
func TestLoopbackServerRefusesOtherHostNames(t *testing.T) {
	for issuer, hosts := range map[string]map[string]bool{
		"http://127.0.0.1:8080": {
			"127.0.0.1:8080": true, "evil.example:8080": false, "evil.example": false, "127.0.0.1": false, "127.0.0.1:80": false,
			"localhost:8080": false, "127.0.0.1:8080.evil.example": false, "evil.example:127.0.0.1:8080": false, "": false,
		},
		"http://localhost": {"localhost": true, "LOCALHOST": true, "localhost:80": true, "localhost:8080": false,
			"evil.example": false},
		"http://[::1]:80":        {"[::1]": true, "[::1]:80": true, "[::2]": false},
		"https://localhost":      {"localhost:443": true, "localhost": true, "localhost:80": false},
		"https://as.example/tea": {"as.example": true, "10.0.0.1:8080": true}, // behind a proxy
	} {
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Issuer = issuer })
		for host, want := range hosts {
			for path, ok := range map[string]int{"/authorize?" + authorizeQuery().Encode(): http.StatusSeeOther,
				"/jwks": http.StatusOK} {
				req := w.request(http.MethodGet, path, "")
				if req.Host = host; host == "" {
					req.URL.Host = ""
				}
				res, err := handlerTransport{w.server}.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if !want {
					ok = http.StatusMisdirectedRequest
				}
				if res.StatusCode != ok || !want && (len(res.Cookies()) > 0 ||
					res.Header.Get("Access-Control-Allow-Origin") != "") {
					t.Errorf("%s asked as %q for %.10s: %s %v", issuer, host, path, res.Status, res.Header)
				}
			}
		}
	}
}

func TestSlowBodyTimesOut(t *testing.T) {
	for name, c := range map[string]struct {
		request     string
		readTimeout time.Duration // of the operator's server
		want        time.Duration
	}{
		"a form": {"POST /token HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n", 0,
			31 * time.Second},
		"one of a page": {"POST /consent HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n", 0,
			31 * time.Second},
		"one that nobody reads": {"GET /nothing HTTP/1.1\r\n", 0, 31 * time.Second},
		"an impatient operator": {"POST /token HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
			5 * time.Second, 5 * time.Second},
		"a very patient operator": {"POST /register HTTP/1.1\r\nContent-Type: application/json\r\n", time.Hour,
			31 * time.Second},
		"a refusal of what is here": {"POST /jwks HTTP/1.1\r\n", 0, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				listener := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				listener.conns <- far
				server := &http.Server{Handler: newServer(t, options("https://as.example")), ReadTimeout: c.readTimeout}
				go func() { _ = server.Serve(listener) }() // ends with Close
				defer server.Close()
				begun := time.Now()
				go func() { // ends with the connection
					_, _ = fmt.Fprint(near, c.request+"Host: as.example\r\nContent-Length: 100\r\n\r\nx=1")
				}()
				answer, err := io.ReadAll(bufio.NewReader(near))
				if took := time.Since(begun); err != nil || took != c.want || !strings.HasPrefix(string(answer),
					"HTTP/1.1 40") {
					t.Errorf("after %v, want %v: %q, %v", took, c.want, answer, err)
				}
			})
		})
	}
}

// The end of the wait for a body is not that of later requests of the connection.
func TestConnectionIsUsableAfterTheBodyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		listener := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.conns <- far
		server := &http.Server{Handler: newServer(t, options("https://as.example"))}
		go func() { _ = server.Serve(listener) }() // ends with Close
		defer server.Close()
		answers := bufio.NewReader(near)
		for range 3 {
			if _, err := fmt.Fprint(near,
				"POST /token HTTP/1.1\r\nHost: as.example\r\nContent-Length: 3\r\n\r\nx=1"); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			time.Sleep(time.Hour)
		}
	})
}

// A pipeListener gives connections that are made already.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
