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

// DNS rebinding can point the host name of a website at a loopback address.
func TestLoopbackServerRefusesOtherHostNames(t *testing.T) {
	for issuer, hosts := range map[string]map[string]bool{
		"http://127.0.0.1:8080": {
			"127.0.0.1:8080": true, "evil.example:8080": false, "evil.example": false, "127.0.0.1": false,
			"127.0.0.1:80": false, "localhost:8080": false, "127.0.0.1:8080.evil.example": false,
			"evil.example:127.0.0.1:8080": false, "": false,
		},
		"http://localhost": {"localhost": true, "LOCALHOST": true, "localhost:80": true, "localhost:8080": false,
			"evil.example": false},
		"http://[::1]:80":        {"[::1]": true, "[::1]:80": true, "[::2]": false},
		"https://localhost":      {"localhost:443": true, "localhost": true, "localhost:80": false},
		"https://as.example/tea": {"as.example": true, "10.0.0.1:8080": true}, // behind a proxy
	} {
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Issuer = issuer })
		for host, want := range hosts {
			for path, status := range map[string]int{
				"/authorize?" + authorizeQuery().Encode(): http.StatusSeeOther, "/jwks": http.StatusOK,
			} {
				req := w.request(http.MethodGet, path, "")
				if req.Host = host; host == "" {
					req.URL.Host = ""
				}
				res, err := handlerTransport{w.server, "192.0.2.1"}.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if !want {
					status = http.StatusMisdirectedRequest
				}
				if res.StatusCode != status || !want && (len(res.Cookies()) > 0 ||
					res.Header.Get("Access-Control-Allow-Origin") != "") {
					t.Errorf("issuer %s, Host %q, path %.10s: %s %v, want %d", issuer, host, path, res.Status,
						res.Header, status)
				}
			}
		}
	}
}

func TestSlowBodyTimesOut(t *testing.T) {
	for name, c := range map[string]struct {
		request     string
		readTimeout time.Duration // of the http.Server
		want        time.Duration
	}{
		"token form": {"POST /token HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n", 0,
			31 * time.Second},
		"consent form": {"POST /consent HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n", 0,
			31 * time.Second},
		"body that no handler reads": {"GET /nothing HTTP/1.1\r\n", 0, 31 * time.Second},
		"shorter ReadTimeout": {"POST /token HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
			5 * time.Second, 5 * time.Second},
		"longer ReadTimeout": {"POST /register HTTP/1.1\r\nContent-Type: application/json\r\n", time.Hour,
			31 * time.Second},
		"method not allowed": {"POST /jwks HTTP/1.1\r\n", 0, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := servePipe(t, c.readTimeout)
				begun := time.Now()
				go func() { // ends with the connection
					_, _ = fmt.Fprint(conn, c.request+"Host: as.example\r\nContent-Length: 100\r\n\r\nx=1")
				}()
				res, err := io.ReadAll(bufio.NewReader(conn))
				took := time.Since(begun)
				if err != nil || took != c.want || !strings.HasPrefix(string(res), "HTTP/1.1 40") {
					t.Errorf("got %q, %v after %v, want a status 40x after %v", res, err, took, c.want)
				}
			})
		})
	}
}

// The deadline of a request's body must not affect later requests on the connection.
func TestConnectionIsUsableAfterTheBodyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := servePipe(t, 0)
		responses := bufio.NewReader(conn)
		for range 3 {
			const request = "POST /token HTTP/1.1\r\nHost: as.example\r\nContent-Length: 3\r\n\r\nx=1"
			if _, err := fmt.Fprint(conn, request); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(responses, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			time.Sleep(time.Hour)
		}
	})
}

// servePipe serves one connection in memory until the test ends, and returns its client side.
func servePipe(t *testing.T, readTimeout time.Duration) net.Conn {
	t.Helper()
	conn, serverConn := net.Pipe()
	listener := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	listener.conns <- serverConn
	server := &http.Server{Handler: newServer(t, options("https://as.example")), ReadTimeout: readTimeout}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return conn
}

// A pipeListener accepts the connections in conns.
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
