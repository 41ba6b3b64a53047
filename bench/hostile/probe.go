//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// runProbe is the process of the authenticated caller.
func runProbe(name, address string) error {
	call, err := partOf(name).probe(address)
	if err != nil {
		return err
	}
	return answerLines("", func(command string) (any, error) {
		d, err := time.ParseDuration(command)
		if err != nil {
			return nil, err
		}
		var took []time.Duration
		for end := time.Now().Add(d); time.Now().Before(end); {
			begin := time.Now()
			if err := call(); err != nil {
				return nil, fmt.Errorf("call %d: %w", len(took)+1, err)
			}
			took = append(took, time.Since(begin))
			time.Sleep(2 * time.Millisecond)
		}
		return took, nil
	})
}

// A connection is an HTTP/1 connection of a caller with requests that were built before.
type connection struct {
	net.Conn
	reader *bufio.Reader
}

func dial(address string) (*connection, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReader(conn)}, nil
}

// exchange sends a request and reads its response, which must be a result.
func (c *connection) exchange(request string) (*http.Response, error) {
	if _, err := io.WriteString(c, request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
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

func newModernProbe(address string) (func() error, error) {
	c, err := dial(address)
	if err != nil {
		return nil, err
	}
	request := newRequests(address, "modern").call("echo", "", "Authorization: Bearer known")
	return func() error {
		_, err := c.exchange(request)
		return err
	}, nil
}

func newSessionProbe(address string) (func() error, error) {
	c, err := dial(address)
	if err != nil {
		return nil, err
	}
	r := newRequests(address, "session")
	resp, err := c.exchange(r.initialize("Authorization: Bearer known"))
	if err != nil {
		return nil, err
	}
	request := r.call("echo", resp.Header.Get("Mcp-Session-Id"), "Authorization: Bearer known")
	return func() error {
		_, err := c.exchange(request)
		return err
	}, nil
}
