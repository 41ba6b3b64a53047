package mcp_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// serverOfTemplate returns a server with one template, and the number of URIs that have matched it.
func serverOfTemplate(t *testing.T, pattern string) (s *mcp.Server, matched *atomic.Int64) {
	matched = new(atomic.Int64)
	s = newServer(t, &mcp.ServerOptions{Visible: func(_ context.Context, f mcp.Feature) bool {
		if f.Template != nil {
			matched.Add(1)
		}
		return true
	}})
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{Name: "t", URITemplate: pattern},
		func(context.Context, map[string]string) (string, error) { return "x", nil })
	return s, matched
}

// A session has one subscription, which is opened again for each further resource.
//
// Requirement: RES-18
func TestSubscribingMatchesEachURIOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const uris = 300
	s, matched := serverOfTemplate(t, "mem:{a}")
	mcptest.RunOn(t, s, oneProcess(mcptest.Before(mcptest.Modern)), nil, func(t *testing.T, c *mcptest.Client) {
		defer c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"mem:first"}})()
		matched.Store(0)
		for n := range uris {
			c.Call("resources/subscribe", object{"uri": fmt.Sprintf("mem:%d", n)})
		}
		if got := matched.Load(); got != uris {
			t.Errorf("%d URIs were matched %d times, want %d", uris, got, uris)
		}
		c.Call("resources/unsubscribe", object{"uri": "mem:1"})
		c.Call("resources/subscribe", object{"uri": "mem:1"})
		if got := matched.Load(); got != uris+1 {
			t.Errorf("%d URIs were matched after one was subscribed to again, want %d", got, uris+1)
		}
	})
}

// Requirement: RES-18
func TestMatchingForOneSubscriptionIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s, matched := serverOfTemplate(t, "mem:{+a}{+b}{+c}{+d}{+e}{+f}{+g}{+h}")
	uris := make([]string, 38) // the params of a subscription have at most 320 KB
	for n := range uris {
		uris[n] = fmt.Sprintf("mem:%02d", n) + strings.Repeat("x", 8000)
	}
	listen := func(uris []string) object {
		return object{"notifications": object{"resourceSubscriptions": uris}}
	}
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		matched.Store(0)
		_, err := c.Try("subscriptions/listen", listen(uris))
		wantCode(t, "38 URIs of 8,000 bytes", err, mcp.CodeInvalidParams)
		if got := matched.Load(); got > 20 {
			t.Errorf("%d URIs of 8,000 bytes were matched with 8 variables, want at most 20", got)
		}
		stop := c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: uris[:10]})
		s.ResourceUpdated(uris[3])
		c.Await(1, "notifications/resources/updated")
		stop()
	})
}
