package mcp_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Requirement: PING-02, PING-03
func TestClientsOfSessionsArePinged(t *testing.T) {
	const interval = 10 * time.Second
	for _, revision := range sessionRevisions {
		for name, transport := range byteTransports {
			t.Run(revision+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := dialBytes(t, newTarget(nil), transport, nil, &mcp.ServeOptions{PingInterval: interval})
					c.open(revision)
					began := time.Now()
					for n := range 6 {
						ping := c.next()
						if ping.Method != "ping" || time.Since(began) != time.Duration(n+1)*interval {
							t.Fatalf("got %s after %v, want a ping each %v", ping.text, time.Since(began), interval)
						}
						response := `"result":{}}`
						if n == 3 {
							response = `"error":{"code":-32601,"message":"method not found"}}`
						}
						if n != 1 && n != 2 { // two missed ones are tolerated
							c.write(`{"jsonrpc":"2.0","id":` + string(ping.ID) + `,` + response)
						}
					}
					c.good()
					silent := time.Now()
					for line := range c.lines {
						if line.Method != "ping" {
							t.Errorf("got %s, want pings", line.text)
						}
					}
					if took := time.Since(silent); took != 4*interval {
						t.Errorf("the stream ended after %v without a response, want %v", took, 4*interval)
					}
					if err := <-c.served; !errors.Is(err, mcp.ErrDisconnected) {
						t.Errorf("Serve returned %v, want %v", err, mcp.ErrDisconnected)
					}
					c.served <- nil // for the cleanup
				})
			})
		}
	}
}

// A client that does not read blocks the write of the ping.
//
// Requirement: PING-02
func TestClientsThatDoNotReadAreDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, w, _ := byteTransports["pipes"](nil)
		defer w.Close()
		served := make(chan error, 1)
		go func() {
			served <- mcp.Serve(t.Context(), newTarget(nil), conn, &mcp.ServeOptions{PingInterval: time.Second, Logger: discardLogger()})
		}()
		c := &byteClient{T: t, Writer: w}
		c.write(sessionRequest(`1`, "initialize", initializeParams))
		if err := <-served; !errors.Is(err, mcp.ErrDisconnected) {
			t.Errorf("Serve returned %v, want %v", err, mcp.ErrDisconnected)
		}
	})
}

// Requirement: PING-04
func TestModernStreamsHaveNoPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialBytes(t, newTarget(nil), byteTransports["pipes"], nil, &mcp.ServeOptions{PingInterval: time.Second})
		c.good()
		time.Sleep(time.Hour)
		c.silent()
	})
}
