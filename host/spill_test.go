package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// largeText has characters of several bytes, so that a page may end within one.
func largeText(size int) string { return strings.Repeat("0123456789äß€😀 \n", size/23) }

// largeServer has a tool whose result has about as many bytes as its argument says.
func largeServer() *mcp.Server {
	s := newServer("all")
	mcp.AddTool(s, &mcp.Tool{Name: "text"}, func(_ context.Context, in struct{ Size int }) (string, error) {
		return largeText(in.Size), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "blocks"}, func(_ context.Context, in struct{ Size int }) ([]mcp.ContentBlock, error) {
		return []mcp.ContentBlock{mcp.Text(largeText(in.Size)), mcp.Text("end")}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(_ context.Context, in struct{ Size int }) (string, error) {
		return "", errors.New(largeText(in.Size))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "structured"}, func(_ context.Context, in struct{ Size int }) (struct{ Text string }, error) {
		return struct{ Text string }{largeText(in.Size)}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "refuse"}, func(_ context.Context, in struct{ Size int }) (string, error) {
		return "", &mcp.Error{Code: -31000, Message: largeText(in.Size)}
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "long"}, func(context.Context, struct{}) (string, error) { return largeText(9000), nil })
	mcp.AddResource(s, &mcp.Resource{URI: "file:///long", Name: "long"}, func(context.Context, string) (string, error) {
		return largeText(9000), nil
	})
	return s
}

// HOST-22: a result that is larger than allowed does not reach the caller.
//
// Requirement: HOST-22
func TestLargeResults(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": largeServer()}, on, `{"limits": {"resultBytes": "4KiB"}}`)
		c := mcptest.Dial(t, annOf(h), on, nil)
		size := map[string]any{"Size": 9000}
		for _, tool := range []string{"text", "blocks", "fail", "structured", "refuse"} {
			res, err := c.CallTool(t.Context(), "all__"+tool, size)
			if err != nil {
				t.Fatalf("%s: %v", tool, err)
			}
			raw, _ := json.Marshal(res.Meta["dev.patchbay/error"])
			const want = "bytes, more than limits.resultBytes of 4KiB; the request may have run"
			if !res.IsError || !strings.Contains(res.Text(), want) || !strings.Contains(string(raw), `"too_large"`) {
				t.Errorf("%s: got %.200s, %s", tool, res.Text(), raw)
			}
		}
		if got, err := mcp.CallTool[string](t.Context(), c, "all__text", map[string]any{"Size": 1000}); len(got) != 1000/23*23 {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		var refused *mcp.Error
		if _, err := c.GetPrompt(t.Context(), "all__long", nil); !errors.As(err, &refused) || !strings.Contains(refused.Message, "limits.resultBytes") {
			t.Errorf("prompt: got %v", err)
		}
		if _, err := c.ReadResource(t.Context(), "file:///long"); !errors.As(err, &refused) || !strings.Contains(refused.Message, "limits.resultBytes") {
			t.Errorf("resource: got %v", err)
		}
		if n := upstream(t, h, "all").Status().Limits.Refused["limits.resultBytes"]; n != 7 {
			t.Errorf("got %d refusals, want 7", n)
		}
	})
}

// linkOf returns the first URI of a result that was kept, and the number of its pages.
func linkOf(t *testing.T, res *mcp.CallToolResult) (uri string, pages int) {
	t.Helper()
	raw, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(raw), "patchbay:///results/")
	if at < 0 {
		t.Fatalf("got %.500s, want a link", raw)
	}
	uri, _, _ = strings.Cut(string(raw)[at:], " ")
	var kept struct{ Pages int }
	meta, _ := json.Marshal(res.Meta["dev.patchbay/result"])
	_ = json.Unmarshal(meta, &kept)
	return uri, kept.Pages
}

// readAll reads all pages from a URI on.
func readAll(t *testing.T, c *mcp.Client, uri string) (text, mimeType string) {
	t.Helper()
	var b strings.Builder
	for uri != "" {
		r, err := c.ReadResource(t.Context(), uri)
		if err != nil || len(r.Contents) != 1 || r.Contents[0].URI != uri {
			t.Fatalf("%s: got %+v, %v", uri, r, err)
		}
		b.WriteString(r.Contents[0].Text)
		mimeType = r.Contents[0].MIMEType
		raw, _ := json.Marshal(r.Meta["dev.patchbay/result"])
		var page struct{ Next string }
		if err := json.Unmarshal(raw, &page); err != nil {
			t.Fatal(err)
		}
		uri = page.Next
	}
	return b.String(), mimeType
}

// HOST-15, HOST-22: a large result is kept for the principal that has caused it, who reads it in pages,
// in every revision: as a link, or as a text with the URI. To others it does not exist.
//
// Requirement: HOST-15
func TestLargeResultsAreKeptForTheirCaller(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": largeServer()}, on, `{"limits": {"resultBytes": "4KiB", "result": "spill"}}`)
		ann, bob := mcptest.Dial(t, annOf(h), on, nil), mcptest.Dial(t, bobOf(h), on, nil)
		size := map[string]any{"Size": 9000}
		res, err := ann.CallTool(t.Context(), "all__text", size)
		if err != nil || res.IsError {
			t.Fatalf("got %+v, %v", res, err)
		}
		const want = "more than limits.resultBytes of 4KiB. It can be read with resources/read for 15m0s, in 5 pages: patchbay:///results/"
		if !strings.Contains(res.Text(), want) {
			t.Errorf("got %q", res.Text())
		}
		if _, ok := res.Content[1].(*mcp.ResourceLink); ok != on.Since("2025-06-18") {
			t.Errorf("got a %T", res.Content[1])
		}
		uri, pages := linkOf(t, res)
		if got, mimeType := readAll(t, ann, uri); got != largeText(9000) || mimeType != "text/plain" || pages != 5 {
			t.Errorf("got %d bytes of %s in %d pages", len(got), mimeType, pages)
		}
		for _, foreign := range []*mcp.Client{bob, mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)} {
			wantUnknown(t, foreign, uri, strings.Replace(uri, "/results/", "/results/A", 1))
		}
		wantUnknown(t, ann, strings.TrimSuffix(uri, "1")+"0", strings.TrimSuffix(uri, "1")+"6", uri+"x", "patchbay:///results/")
		if res, err = ann.CallTool(t.Context(), "all__blocks", size); err != nil {
			t.Fatal(err)
		}
		uri, _ = linkOf(t, res)
		text, mimeType := readAll(t, ann, uri)
		var all struct{ Content []struct{ Text string } }
		if err := json.Unmarshal([]byte(text), &all); err != nil || mimeType != "application/json" || all.Content[0].Text != largeText(9000) {
			t.Errorf("got %.100s of %s, %v", text, mimeType, err)
		}
		for _, tool := range []string{"fail", "structured"} {
			if res, err = ann.CallTool(t.Context(), "all__"+tool, size); err != nil || !res.IsError && tool == "fail" {
				t.Errorf("%s: got %+v, %v", tool, res, err)
			}
			linkOf(t, res)
		}
		if _, err := ann.ReadResource(t.Context(), "file:///long"); err == nil || !strings.Contains(err.Error(), "limits.resultBytes") {
			t.Errorf("resource: got %v", err)
		}
	})
}

// wantUnknown reads resources that do not exist for a client. Their errors differ in the URI only.
func wantUnknown(t *testing.T, c *mcp.Client, uris ...string) {
	t.Helper()
	texts := map[string]bool{}
	for _, uri := range uris {
		_, err := c.ReadResource(t.Context(), uri)
		var refused *mcp.Error
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want not found", uri, err)
			return
		}
		texts[strings.ReplaceAll(fmt.Sprint(refused.Code, refused.Message, string(refused.Data)), uri, "URI")] = true
	}
	if len(texts) != 1 {
		t.Errorf("got different errors: %v", texts)
	}
}

// A kept result ends after 15 minutes, whether it is read or not, and with its host.
func TestKeptResultsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
		h := newHost(t, map[string]mcp.Handler{"all": largeServer()}, on, `{"limits": {"resultBytes": "4KiB", "result": "spill"}}`)
		c := clientOfView(t, annOf(h))
		keep := func(size int) string {
			t.Helper()
			res, err := c.CallTool(t.Context(), "all__text", map[string]any{"Size": size})
			if err != nil {
				t.Fatal(err)
			}
			uri, _ := linkOf(t, res)
			return uri
		}
		uri := keep(9000)
		time.Sleep(15*time.Minute - time.Second)
		readAll(t, c, uri)
		time.Sleep(time.Second)
		wantUnknown(t, c, uri)
		first := keep(9000)
		keep(9000)
		if n, size := spilled(h); n != 2 || size != 2*(9000/23*23) {
			t.Errorf("got %d results of %d bytes", n, size)
		}
		readAll(t, c, first)
		_ = h.Close()
		if n, size := spilled(h); n != 0 || size != 0 {
			t.Errorf("a closed host has %d results of %d bytes", n, size)
		}
	})
}

// HOST-11: the results of one principal do not remove those of another, and those of all have a bound.
//
// Requirement: HOST-11
func TestKeptResultsHaveShares(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
		h := hostileHost(t, map[string]mcp.Handler{"all": largeServer()}, on,
			`{"limits": {"resultBytes": "1MiB", "result": "spill"}, "servers": {"all": {"share": "shared"}}}`)
		keep := func(name string, size int) string {
			t.Helper()
			c := clientOfView(t, h.For(&policy.Caller{Principal: principal(name)}))
			res, err := c.CallTool(t.Context(), "all__text", map[string]any{"Size": size})
			if err != nil {
				t.Fatal(err)
			}
			uri, _ := linkOf(t, res)
			return uri
		}
		read := func(name, uri string) error {
			_, err := clientOfView(t, h.For(&policy.Caller{Principal: principal(name)})).ReadResource(t.Context(), uri)
			return err
		}
		bob := keep("bob", 2<<20)
		first := keep("ann", 30<<20)
		for range 3 {
			keep("ann", 30<<20)
		}
		if err := read("bob", bob); err != nil {
			t.Errorf("the result of another principal was removed: %v", err)
		}
		if err := read("ann", first); err == nil {
			t.Error("a principal has more than its share")
		}
		for _, name := range []string{"c", "d", "e", "f"} {
			keep(name, 60<<20)
		}
		if n, size := spilled(h); size > 256<<20 || n < 4 {
			t.Errorf("got %d results of %d bytes", n, size)
		}
		if err := read("bob", bob); err != nil {
			t.Errorf("the result of the principal with the fewest bytes was removed: %v", err)
		}
		res, err := clientOfView(t, annOf(h)).CallTool(t.Context(), "all__text", map[string]any{"Size": 70 << 20})
		if err != nil || !res.IsError || !strings.Contains(res.Text(), "and than the 64MiB that are kept of one caller") {
			t.Errorf("got %.300s, %v", res.Text(), err)
		}
	})
}

// spilled returns the number of results that a host keeps for its callers, and their size.
func spilled(h *host.Host) (results, size int) {
	st := h.Stats()
	return st.Spilled, st.SpilledBytes
}
