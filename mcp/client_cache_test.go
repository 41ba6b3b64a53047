package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A result cached for one principal is not returned to another.
//
// Requirement: CACHE-09
func TestCachedResultsBelongToOnePrincipal(t *testing.T) {
	c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		return `{"contents":[{"uri":"a:1","text":"for ` + req.Principal.Issuer +
			`"}],"ttlMs":60000,"cacheScope":"private"}`, nil
	})
	for _, issuer := range []string{"a", "b", "a"} {
		ctx := mcp.WithPrincipal(t.Context(), &mcp.Principal{Issuer: issuer})
		r, err := c.ReadResource(ctx, "a:1")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(r.Contents[0].Text), "for "+issuer; got != want {
			t.Errorf("principal %s: got %q, want %q", issuer, got, want)
		}
	}
}

// A result that was requested before a notification of its change is not cached.
//
// Requirement: CACHE-11
func TestResultOlderThanAnInvalidationIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change, answer := make(chan struct{}), make(chan struct{}, 2)
		lists := 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if req.Method == "tools/list" {
				lists++
				<-answer
				return `{"tools":[],"ttlMs":60000,"cacheScope":"private"}`, nil
			}
			acknowledge(ctx, req)
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
			t.Errorf("got %d requests of tools/list, want 2: the outdated result was cached", lists)
		}
	})
}

// Requirement: CACHE-04
func TestChangingAResultDoesNotChangeTheCache(t *testing.T) {
	c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
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
		t.Error("SupportedRevisions returns the client's own slice, want a copy")
	}
}

// An invalid cursor drops the cached first page, so that the next listing succeeds.
//
// Requirement: CACHE-13
func TestInvalidCursorDropsCachedPages(t *testing.T) {
	generation := "1"
	tool := `{"name":"t%s","inputSchema":{"type":"object"}}`
	c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		switch memberOf(t, req.Params, "cursor") {
		case "":
			return `{"tools":[` + fmt.Sprintf(tool, "a") + `],"nextCursor":"` + generation +
				`","ttlMs":3600000,"cacheScope":"private"}`, nil
		case `"` + generation + `"`:
			return `{"tools":[` + fmt.Sprintf(tool, "b") + `],"ttlMs":0,"cacheScope":"private"}`, nil
		}
		return "", mcp.Errorf(mcp.CodeInvalidParams, "unknown cursor")
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
	_, _ = list() // may fail: the first page comes from the cache, with an invalid cursor
	if names, err := list(); err != nil || len(names) != 2 {
		t.Errorf("after the cursor became invalid: got %v, %v, want 2 tools", names, err)
	}
}
