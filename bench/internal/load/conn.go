package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// A conn is one persistent HTTP/1.1 connection. It implements the subset of
// HTTP that Go servers use for responses: a Content-Length or chunks, no
// trailers.
type conn struct {
	net.Conn
	in   []byte // bytes read and not yet used are in[r:w]
	r, w int
	body []byte // joined chunks of the last response
}

// An answer is one HTTP response. It aliases the connection's buffers and is
// valid until the next request.
type answer struct {
	status int
	header []byte
	body   []byte
}

// maxAnswer bounds one response; the largest of the benchmark is just over 1
// MiB.
const maxAnswer = 2 << 20

var errLargeAnswer = errors.New("response is too large")

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, in: make([]byte, 8<<10)}
}

// do sends one request and reads the whole response.
func (c *conn) do(request []byte) (answer, error) {
	if _, err := c.Write(request); err != nil {
		return answer{}, err
	}
	return c.readAnswer()
}

func (c *conn) readAnswer() (a answer, err error) {
	c.r, c.w = 0, copy(c.in, c.in[c.r:c.w])
	end := -1
	for end < 0 {
		if end = bytes.Index(c.in[:c.w], []byte("\r\n\r\n")); end < 0 {
			if err := c.fill(); err != nil {
				return a, err
			}
		}
	}
	// Reading the body may replace the buffer by a larger one. The old buffer
	// is not modified, so the header slice remains valid.
	a.header = c.in[:end+2]
	c.r = end + 4
	if a.status, err = status(a.header); err != nil {
		return a, err
	}
	if n := headerValue(a.header, "Content-Length"); n != nil {
		a.body, err = c.readFixed(n)
		return a, err
	}
	if bytes.EqualFold(headerValue(a.header, "Transfer-Encoding"), []byte("chunked")) {
		a.body, err = c.readChunks()
		return a, err
	}
	return a, fmt.Errorf("response has neither Content-Length nor chunks: %q", a.header)
}

func (c *conn) readFixed(length []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > maxAnswer {
		return nil, fmt.Errorf("invalid Content-Length %q", length)
	}
	if err := c.need(n); err != nil {
		return nil, err
	}
	c.r += n
	return c.in[c.r-n : c.r], nil
}

func (c *conn) readChunks() ([]byte, error) {
	c.body = c.body[:0]
	for {
		line, err := c.readLine()
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(line), 16, 22)
		if err != nil || len(c.body)+int(n) > maxAnswer {
			return nil, fmt.Errorf("invalid chunk size %q", line)
		}
		if err := c.need(int(n) + 2); err != nil {
			return nil, err
		}
		c.body = append(c.body, c.in[c.r:c.r+int(n)]...)
		c.r += int(n) + 2
		if n == 0 {
			return c.body, nil
		}
	}
}

func (c *conn) readLine() ([]byte, error) {
	for {
		if i := bytes.Index(c.in[c.r:c.w], []byte("\r\n")); i >= 0 {
			line := c.in[c.r : c.r+i]
			c.r += i + 2
			return line, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// need reads until n unused bytes are buffered.
func (c *conn) need(n int) error {
	for c.w-c.r < n {
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

// fill reads once, into a larger buffer if this one is full.
func (c *conn) fill() error {
	if c.w == len(c.in) {
		if len(c.in) >= maxAnswer {
			return errLargeAnswer
		}
		larger := make([]byte, 2*len(c.in))
		copy(larger, c.in[:c.w])
		c.in = larger
	}
	n, err := c.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

func status(header []byte) (int, error) {
	if len(header) < len("HTTP/1.1 200") || string(header[:9]) != "HTTP/1.1 " {
		return 0, fmt.Errorf("not an HTTP response: %.100q", header)
	}
	return strconv.Atoi(string(header[9:12]))
}

// headerValue returns the value of the first header field with that name, or
// nil.
func headerValue(header []byte, name string) []byte {
	for {
		i := bytes.Index(header, []byte("\r\n"))
		if i < 0 {
			return nil
		}
		header = header[i+2:]
		if len(header) > len(name) && header[len(name)] == ':' && bytes.EqualFold(header[:len(name)], []byte(name)) {
			value, _, _ := bytes.Cut(header[len(name)+1:], []byte("\r\n"))
			return bytes.TrimSpace(value)
		}
	}
}
