package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A result cached for one principal is not returned to another.
func TestCACHE09_CachedResultsBelongToOnePrincipal(t *testing.T) {
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		return `{"contents":[{"uri":"a:1","text":"for ` + req.Principal.Issuer + `"}],"ttlMs":60000,"cacheScope":"private"}`, nil
	})
	for _, who := range []string{"a", "b", "a"} {
		ctx := mcp.WithPrincipal(t.Context(), &mcp.Principal{Issuer: who})
		r, err := c.ReadResource(ctx, "a:1")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Contents[0].Text); !strings.Contains(got, "for "+who) {
			t.Errorf("%s reads %q", who, got)
		}
	}
}

// A result that was requested before a notification of its change is not cached.
func TestCACHE11_ResultOlderThanAnInvalidationIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change, answer := make(chan struct{}), make(chan struct{}, 2)
		lists := 0
		c := scripted(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if req.Method == "tools/list" {
				lists++
				<-answer
				return `{"tools":[],"ttlMs":60000,"cacheScope":"private"}`, nil
			}
			_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
			<-change
			_ = req.Notify(ctx, "notifications/tools/list_changed", json.RawMessage(`{}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		list := func() {
			for _, err := range c.Tools(t.Context()) {
				t.Error(err)
			}
		}
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventListening {
				go list()
				synctest.Wait()
				close(change)
				continue
			}
			break
		}
		answer <- struct{}{}
		synctest.Wait()
		answer <- struct{}{}
		list()
		if lists != 2 {
			t.Errorf("asked %d times, want 2: what is old was kept", lists)
		}
	})
}

// The caller may change a result.
func TestCACHE04_ChangingAResultDoesNotChangeTheCache(t *testing.T) {
	c := scripted(t, nil, func(context.Context, *mcp.Request) (string, error) {
		return `{"contents":[],"ttlMs":60000,"cacheScope":"private"}`, nil
	})
	for range 3 {
		raw, err := c.Do(t.Context(), "resources/read", map[string]string{"uri": "a:1"})
		if err != nil || !bytes.Contains(raw, []byte("contents")) {
			t.Fatalf("got %s, %v", raw, err)
		}
		clear(raw)
	}
	v := c.SupportedRevisions()
	v[0] = "changed"
	if c.SupportedRevisions()[0] == "changed" {
		t.Error("Versions gives what is the client's")
	}
}

// An invalid cursor drops the cached first page, so that the next listing succeeds.
func TestCACHE13_InvalidCursorDropsCachedPages(t *testing.T) {
	generation, asked := "1", 0
	tool := `{"name":"t%s","inputSchema":{"type":"object"}}`
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		asked++
		switch member(t, req.Params, "cursor") {
		case "":
			return `{"tools":[` + fmt.Sprintf(tool, "a") + `],"nextCursor":"` + generation + `","ttlMs":3600000,"cacheScope":"private"}`, nil
		case `"` + generation + `"`:
			return `{"tools":[` + fmt.Sprintf(tool, "b") + `],"ttlMs":0,"cacheScope":"private"}`, nil
		}
		return "", mcp.Errorf(mcp.CodeInvalidParams, "that cursor is gone")
	})
	list := func() (names []string, err error) {
		for v, err := range c.Tools(t.Context()) {
			if err != nil {
				return names, err
			}
			names = append(names, v.Name)
		}
		return names, nil
	}
	if names, err := list(); err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	generation = "2"
	_, _ = list() // may fail: it has given the first page already
	if names, err := list(); err != nil || len(names) != 2 {
		t.Errorf("got %v, %v", names, err)
	}
}
