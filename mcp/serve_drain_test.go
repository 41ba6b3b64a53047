package mcp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// maxHostWait is how long hosts wait between closing the input of a server and killing it.
const maxHostWait = 4 * time.Second

// Requirement: STDIO-15
func TestServersEndBeforeHostsKillThem(t *testing.T) {
	calls := map[string]func(c *byteClient){
		"modern": func(c *byteClient) { c.write(envelopedCall(`1`, "long", "")) },
	}
	for _, revision := range sessionRevisions {
		calls[revision] = func(c *byteClient) { c.open(revision); c.write(bareCall(`1`, "long", "")) }
	}
	for name, call := range calls {
		for _, heedsContext := range []bool{true, false} {
			for _, signalled := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newTarget(nil)
						addTool(s.Server, "long", func(ctx context.Context) (string, error) {
							select {
							case <-time.After(20 * time.Second):
							case <-ctx.Done():
								if !heedsContext {
									time.Sleep(20 * time.Second)
								}
							}
							return "", nil
						})
						c := dialBytes(t, s, byteTransports["pipes"], nil, nil)
						call(c)
						synctest.Wait()
						began := time.Now()
						if signalled {
							c.stop() // as a signal of Stdio does
						} else {
							c.end.Close()
						}
						for range c.lines {
						}
						if took := time.Since(began); took >= maxHostWait {
							t.Errorf("the server ended after %v, want less than %v", took, maxHostWait)
						}
						time.Sleep(time.Minute) // until the handler has returned
					})
				})
			}
		}
	}
}
