package console_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
)

// asNobody sends a request as another user, and returns the response.
func asNobody(t *testing.T, address, request string) string {
	t.Helper()
	answer := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		const nobody = 65534
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			answer <- e.Error()
			return
		}
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			answer <- err.Error()
			return
		}
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		to, _ := net.ResolveTCPAddr("tcp", address)
		if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
			answer <- err.Error()
			return
		}
		_, _ = io.WriteString(f, request)
		text, _ := io.ReadAll(f)
		answer <- string(text)
	}()
	return <-answer
}

// Another user of the machine who reads the token in the arguments of the browser, or receives the
// cookie at another port, cannot use them, and does not use them up.
func TestTokenAndCookieAreForTheirUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to act as another user")
	}
	s := consoletest.New(t, nil)
	body := url.Values{"token": {s.Token}}.Encode()
	address := strings.TrimPrefix(s.Base, "http://")
	request := fmt.Sprintf("POST /login HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\n\r\n%s", address, len(body), body)
	got := asNobody(t, address, request)
	if !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Contains(got, "Set-Cookie") {
		t.Errorf("another user got %.300s, want 403", got)
	}
	res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", url.Values{"token": {s.Token}})
	if res.StatusCode != http.StatusSeeOther {
		t.Errorf("the user got %d, want 303", res.StatusCode)
	}
	request = fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nCookie: %s\r\n\r\n", address,
		res.Header.Get("Set-Cookie"))
	if got := asNobody(t, address, request); !strings.HasPrefix(got, "HTTP/1.1 303 ") ||
		!strings.Contains(got, "Location: /login") {
		t.Errorf("another user with the cookie got %.300s, want the login page", got)
	}
}
