package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// resourceServer returns a server with resources for the tests of this file.
func resourceServer(t *testing.T, opts *mcp.ServerOptions) *mcp.Server {
	s := newServer(t, opts)
	size := int64(5)
	mcp.AddResource(s, &mcp.Resource{
		URI: "x://hello", Name: "hello", Title: "Hello", Description: "A greeting.", Size: &size,
		Annotations: &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: pointer(1.0)},
		Icons:       []mcp.Icon{{Src: "https://example.com/i.png"}}, Meta: mcp.Meta{"com.example/x": 1},
		Cache: mcp.Cache{TTL: 5000 * time.Millisecond, Public: true},
	}, func(context.Context, string) (string, error) { return "hello", nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://bytes", Name: "bytes"}, func(context.Context, string) ([]byte, error) { return []byte{0, 255}, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://parts", Name: "parts"}, func(context.Context, string) ([]*mcp.ResourceContents, error) {
		return []*mcp.ResourceContents{{URI: "x://parts/1", Text: "1", Meta: mcp.Meta{"com.example/x": 1}}, {URI: "x://parts/2", Blob: []byte{}}}, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://gone", Name: "gone"}, func(context.Context, string) (string, error) { return "", fs.ErrNotExist })
	mcp.AddResource(s, &mcp.Resource{URI: "x://busy", Name: "busy"}, func(context.Context, string) (string, error) {
		return "", mcp.Errorf(4713, "come back later")
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://asks", Name: "asks"}, func(ctx context.Context, _ string) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(len(roots)), err
	})
	type day struct {
		Year int    `json:"year"`
		Tag  string `json:"tag,omitempty"`
	}
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://log/{year}{?tag}", Name: "log", Title: "Log", Icons: []mcp.Icon{{Src: "https://example.com/i.png"}}},
		func(_ context.Context, d day) (string, error) { return fmt.Sprint(d.Year, " ", d.Tag), nil })
	mcp.AddFS(s, "file:///docs/", fstest.MapFS{"a/b c.txt": {Data: []byte("text")}})
	return s
}

type readResult struct {
	Contents []struct {
		URI, MIMEType string
		Text, Blob    *string
	}
	TTLMs      *int
	CacheScope string
}

// Requirement: RES-03, RES-21, CACHE-02
func TestReadingInEveryRevision(t *testing.T) {
	s := resourceServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for uri, want := range map[string]string{
			"x://hello": "x://hello text/plain hello", "x://bytes": "x://bytes application/octet-stream AP8=",
			"x://parts": "x://parts/1  1, x://parts/2  ", "x://asks": "x://asks text/plain 1",
			"x://log/2026?tag=a%20b": "x://log/2026?tag=a%20b text/plain 2026 a b", "x://log/7": "x://log/7 text/plain 7 ",
			"file:///docs/a/b%20c.txt": "file:///docs/a/b%20c.txt text/plain text",
		} {
			res := decode[readResult](t, c.Call("resources/read", object{"uri": uri}))
			var got []string
			for _, part := range res.Contents {
				text := part.Text
				if text == nil {
					text = part.Blob
				}
				if text == nil {
					t.Fatalf("%s: neither text nor blob", uri)
				}
				got = append(got, part.URI+" "+part.MIMEType+" "+*text)
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%s: got %q, want %q", uri, got, want)
			}
			ttl, scope := 0, "private" // CACHE-01, CACHE-02
			if uri == "x://hello" {
				ttl, scope = 5000, "public"
			}
			if hinted := res.TTLMs != nil && *res.TTLMs == ttl && res.CacheScope == scope; hinted != c.Modern() {
				t.Errorf("%s: got caching hints %v %s, want %d %s only in modern revisions", uri, res.TTLMs, res.CacheScope, ttl, scope)
			}
		}
	})
}

// Requirement: RES-08, RES-09, RES-10, RES-16
func TestNotFoundInEveryRevision(t *testing.T) {
	s := resourceServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		code := -32002
		if c.Modern() {
			code = mcp.CodeInvalidParams
		}
		for _, uri := range []string{"x://none", "x://gone", "x://log/year", "file:///docs/none", "file:///docs/a/%2e%2e/%2e%2e/etc", "file:///etc/passwd"} {
			_, err := c.Try("resources/read", object{"uri": uri})
			wantCode(t, uri, err, code)
			if err != nil && string(err.Data) != `{"uri":"`+uri+`"}` {
				t.Errorf("%s: got data %s, want the URI", uri, err.Data)
			}
		}
		_, err := c.Try("resources/read", object{"uri": "x://busy"})
		if err == nil || err.Code != 4713 || err.Message != "come back later" {
			t.Errorf("busy: got %v, want code 4713", err)
		}
		for _, uri := range []string{"", "no uri", "/etc/passwd"} { // RES-16
			_, err := c.Try("resources/read", object{"uri": uri})
			wantCode(t, uri, err, mcp.CodeInvalidParams)
		}
	})
}

// Requirement: RES-02
func TestListsInEveryRevision(t *testing.T) {
	s := resourceServer(t, &mcp.ServerOptions{PageSize: 4, Cache: mcp.Cache{TTL: 1000 * time.Millisecond, Public: true}})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		var list string
		var uris []string
		params := object{}
		for {
			raw := c.Call("resources/list", params)
			page := decode[struct {
				Resources  []struct{ URI string }
				NextCursor *string
			}](t, raw)
			list += string(raw)
			for _, r := range page.Resources {
				uris = append(uris, r.URI)
			}
			if page.NextCursor == nil {
				break
			}
			params["cursor"] = *page.NextCursor
		}
		if got := strings.Join(uris, " "); !strings.HasSuffix(got, "x://asks x://busy x://bytes x://gone x://hello x://parts") {
			t.Errorf("got %s", got)
		}
		list += string(c.Call("resources/templates/list", nil))
		for member, since := range map[string]string{
			`"size":5`: "2024-11-05", `"audience":["user"],"priority":1`: "2024-11-05", `"uriTemplate":"x://log/{year}{?tag}"`: "2024-11-05",
			`"title":"Hello"`: "2025-06-18", `"title":"Log"`: "2025-06-18", `"com.example/x":1`: "2025-06-18", `"icons"`: "2025-11-25",
			`"ttlMs":1000,"cacheScope":"public"`: "2026-07-28",
		} {
			if strings.Contains(list, member) != c.Since(since) {
				t.Errorf("want %s since %s, got %s", member, since, list)
			}
		}
	})
}

// A resource that the caller may not see is treated as not found by every method.
//
// Requirement: RES-17, CACHE-14
func TestHiddenResourcesAreNotFoundInEveryRevision(t *testing.T) {
	s := resourceServer(t, &mcp.ServerOptions{Visible: func(ctx context.Context, f mcp.Feature) bool {
		hidden := f.Resource != nil && f.Resource.URI == "x://hello" || f.Template != nil && f.Template.Name == "log"
		return !hidden || mcp.RequestFrom(ctx).Principal != nil
	}})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		known := c.Another(&mcptest.Options{Principal: &mcp.Principal{Subject: "ada"}})
		for _, uri := range []string{"x://hello", "x://log/7"} {
			_, missing := c.Try("resources/read", object{"uri": "x://none"})
			_, hidden := c.Try("resources/read", object{"uri": uri})
			if hidden == nil || hidden.Code != missing.Code || hidden.Message != missing.Message {
				t.Errorf("%s: got %v, want the error of a missing resource: %v", uri, hidden, missing)
			}
			res := known.Call("resources/read", object{"uri": uri})
			if known.Modern() && !strings.Contains(string(res), `"cacheScope":"private"`) {
				t.Errorf("got %s, want cacheScope private", res)
			}
		}
		lists := func(c *mcptest.Client) string {
			return string(c.Call("resources/list", nil)) + string(c.Call("resources/templates/list", nil))
		}
		if got := lists(c); strings.Contains(got, "x://hello") || strings.Contains(got, "x://log") {
			t.Errorf("guest: got %s, want no hidden resources", got)
		}
		if got := lists(known); !strings.Contains(got, "x://hello") || !strings.Contains(got, "x://log") {
			t.Errorf("ada: got %s, want all resources", got)
		}
		c.Listen(mcp.SubscriptionFilter{})
		known.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"x://hello"}})
		if !c.Modern() {
			_, _ = c.Try("resources/subscribe", object{"uri": "x://hello"})
		}
		s.ResourceUpdated("x://hello")
		known.Await(1, resourceUpdated)
		if got := c.Notifications(resourceUpdated); len(got) > 0 {
			t.Errorf("guest: got update %s, want none", json.RawMessage(got[0].Params))
		}
	})
}
