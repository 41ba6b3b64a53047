package traffic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// traffic returns a site that shows three calls of a tool, and their ring. The exchange of the
// first call has the id first.
func traffic(t *testing.T) (s *consoletest.Site, ring *capture.Ring, first uint64) {
	t.Helper()
	ring = capture.New(&capture.Options{Always: true})
	server := mcp.NewServer("srv", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Text string  `json:"text"`
		N    float64 `json:"n"`
	}) (string, error) {
		if in.Text == "" {
			return "", &mcp.Error{Code: 4001, Message: "no text"}
		}
		return in.Text, nil
	})
	c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), "srv", "ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range []string{"<b>one</b>", "two", ""} {
		_, _ = c.CallTool(t.Context(), "echo", json.RawMessage(fmt.Sprintf(`{"text":%q,"n":1.50}`, text)))
	}
	q, _ := capture.ParseQuery("method:tools/call")
	found := ring.Find(q, 0, 10)
	if len(found) != 3 {
		t.Fatalf("got %d calls, want 3", len(found))
	}
	s = consoletest.New(t, func(o *console.Options) { o.Capture = ring })
	return s, ring, found[2].ID
}

func TestTrafficShowsExchanges(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _, first := traffic(t)
	b := s.Browser()
	see := func(query string, want, unwanted []string) {
		t.Helper()
		res, page := s.Send(b, http.MethodGet, "/traffic"+query, nil)
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: got status %d", query, res.StatusCode)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s: got %s\nwant %s", query, page, text)
			}
		}
		for _, text := range unwanted {
			if strings.Contains(page, text) {
				t.Errorf("%s: got %s\nwant no %s", query, page, text)
			}
		}
	}
	row := func(n uint64) string { return fmt.Sprintf(`id="x%d"`, n) }
	see("", []string{row(first), row(first + 2), "tools/call echo", "error 4001", "ann"}, nil)
	see("?q="+url.QueryEscape("status:error"), []string{row(first + 2)}, []string{row(first), row(first + 1)})
	see("?q=foo:1", []string{"position 1: unknown field", row(first)}, nil)
	see(fmt.Sprintf("?id=%d", first), []string{"&#34;n&#34;: 1.50", "&lt;b&gt;one&lt;/b&gt;", "compare", `aria-selected="true"`},
		[]string{"<b>one"})
	see(fmt.Sprintf("?id=%d&with=%d", first, first+1), []string{`class="removed"`, `class="added"`, "two"}, []string{"are equal"})
	see(fmt.Sprintf("?id=%d&with=%d", first, first), []string{"The messages are equal"}, nil)
	see(fmt.Sprintf("?id=%d&with=%d", first, first+1), []string{"Ids and times are not compared", "exact=yes"}, nil)
	see(fmt.Sprintf("?id=%d&with=%d&exact=yes", first, first+1), []string{"Ids and times are compared",
		`&#34;id&#34;:`, `Ignore ids and times`}, []string{"…&#34;"})
	see("?id=9999", []string{"is no longer held"}, nil)
	see("?id=<x>", []string{row(first)}, []string{"<x>"})
}

func TestTrafficIsExported(t *testing.T) {
	mcptest.NoLeaks(t)
	s, _, first := traffic(t)
	b := s.Browser()
	for query, want := range map[string]string{
		"format=recording": `"recording":1`, "format=har": `"version":"1.2"`,
		fmt.Sprintf("format=recording&id=%d", first): "one",
	} {
		res, text := s.Send(b, http.MethodGet, "/traffic/export?"+query, nil)
		if res.StatusCode != http.StatusOK || !strings.Contains(text, want) ||
			!strings.Contains(res.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: got %d %v %.200s", query, res.StatusCode, res.Header, text)
		}
	}
	for query, want := range map[string]string{"q=foo:1": "unknown field", "q=server:none": "no exchange matches", "id=x": "must be a number"} {
		res, text := s.Send(b, http.MethodGet, "/traffic/export?"+query, nil)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %.500s, want %s", query, res.StatusCode, text, want)
		}
	}
	res, _ := s.Send(s.Stranger(), http.MethodGet, "/traffic/export?format=har", nil)
	if res.StatusCode == http.StatusOK {
		t.Error("a stranger may export the traffic")
	}
}

// No page and no export of Traffic contains a secret of the configuration or of a schema.
func TestTrafficShowsNoSecrets(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	ring.SetMask(func(text string) string { return strings.ReplaceAll(text, "s3cr3t", "[hidden]") })
	server := mcp.NewServer("srv", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "log_in"}, func(_ context.Context, in struct {
		Password string `json:"password" jsonschema:"format=password"`
	}) (string, error) {
		return "welcome, s3cr3t", nil
	})
	c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), "srv", "ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Tools(t.Context()) { // whose schema names the secret
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CallTool(t.Context(), "log_in", json.RawMessage(`{"password":"hunter\u0032"}`)); err != nil {
		t.Fatal(err)
	}
	v := consoletest.New(t, func(o *console.Options) { o.Capture = ring }).Visitor()
	for _, x := range ring.Find(nil, 0, 100) {
		id := fmt.Sprint(x.ID)
		for _, path := range []string{"/traffic?id=" + id, "/traffic/export?format=har&id=" + id} {
			text := v.See(path)
			for _, secret := range []string{"s3cr3t", "hunter"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: the page contains %s:\n%s", path, secret, text)
				}
			}
		}
	}
	if text := v.See("/traffic/export?q=method:tools/call&format=recording"); strings.Contains(text, "hunter") ||
		strings.Contains(text, "s3cr3t") || !strings.Contains(text, "log_in") {
		t.Errorf("recording: got %s", text)
	}
}
