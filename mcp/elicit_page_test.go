package mcp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// URLs that are unsafe to open, or that a user cannot recognize, do not reach the program.
//
// Requirement: ELI-18
func TestElicitURLGetsSafeURLsOnly(t *testing.T) {
	for page, want := range map[string]string{
		"https://example.com/a?b=c":     "https://example.com/a?b=c",
		"https://example.com/é":         "https://example.com/%C3%A9",
		"https://example.com/a b":       "",
		"https://example.com/\u202egnp": "",
		"https://example.com/\u200b":    "",
		"https://ex\u0430mple.com/":     "",
		"https://[fe80::1%25en0]/":      "",
		"https://user@example.com/":     "",
		"http://example.com/":           "",
	} {
		got := ""
		opts := &mcp.ClientOptions{ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			got = p.URL
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
		}}
		params := fmt.Sprintf(`{"mode":"url","message":"m","url":%q}`, page)
		h := inputHandler(t, "elicitation/create", params)
		for _, on := range mcptest.Since("2025-11-25") {
			got = ""
			_, err := mcptest.Dial(t, h, on, opts).CallTool(t.Context(), "t", nil)
			if got != want {
				t.Errorf("%s: %s: ElicitURL got %q (error %v), want %q", on, page, got, err, want)
			}
		}
	}
}

// Requirement: ELI-18
func TestHostWarningIsForEncodedHosts(t *testing.T) {
	p := &mcp.ElicitRequestParams{URL: "https://xn--80ak6aa92e.com/"}
	if got := p.HostWarning(); !strings.Contains(got, "encoded") {
		t.Errorf("got %q, want a warning", got)
	}
	p.URL = "https://example.com/xn--"
	if got := p.HostWarning(); got != "" {
		t.Errorf("got %q, want no warning", got)
	}
}

// A server sends another request's progress on this request's stream.
//
// Requirement: PROG-02
func TestProgressOfAnotherRequestIsIgnored(t *testing.T) {
	h := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(discovered), nil
		}
		own := memberOf(t, []byte(memberOf(t, req.Params, "_meta")), "progressToken")
		for i, token := range []string{`999`, `"` + own + `"`, own, `null`} {
			_ = req.Notify(ctx, "notifications/progress",
				fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, i))
		}
		return mcp.RawResult(emptyContent), nil
	})
	onClients(t, h, nil, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		var got []float64
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{
			Progress: func(u mcp.ProgressUpdate) { got = append(got, u.Progress) },
		})
		if _, err := c.CallTool(ctx, "t", nil); err != nil || len(got) != 1 || got[0] != 2 {
			t.Errorf("got progress %v, error %v, want 2 only", got, err)
		}
	})
}
