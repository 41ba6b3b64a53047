package apps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: UI-04
func TestPagesCallToolsForViews(t *testing.T) {
	runOn(t, mcptest.Combinations(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		var asked []string
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: func(_ context.Context, tool *mcp.Tool, args json.RawMessage) error {
			asked = append(asked, tool.Name+string(args))
			return nil
		}})
		f.handshake()
		for _, name := range []string{"time", "refresh", "plain"} {
			got, code := f.request("tools/call", `{"name":"`+name+`","arguments":{"zone":"UTC"},"_meta":{"progressToken":1},"task":{}}`)
			if code != 0 {
				t.Fatalf("%s: error %d", name, code)
			}
			structured := `"structuredContent":{"zone":"UTC"},`
			if c.Revision() < "2025-06-18" {
				structured = "" // the revision has no structuredContent
			}
			wantJSON(t, "result of "+name, got, `{"content":[{"type":"text","text":"shown"}],`+structured+`"_meta":{"example.com/stamp":"12:00"}}`)
		}
		for _, params := range []string{`{"name":"ask","arguments":{"zone":"UTC"}}`, `{"name":"unknown"}`, `{}`, `{"name":1}`, `{"name":"time","arguments":[]}`} {
			if got, code := f.request("tools/call", params); code != mcp.CodeInvalidParams {
				t.Errorf("tools/call %s: %s, %d", params, got, code)
			}
		}
		if got := strings.Join(asked, " "); got != `time{"zone":"UTC"} refresh{"zone":"UTC"} plain{"zone":"UTC"}` {
			t.Errorf("AllowTool got %s", got)
		}
	})
}

func TestPagesReadResources(t *testing.T) {
	runOn(t, mcptest.Combinations(), newClock(t), apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowRead: func(context.Context, string) error { return nil }})
		f.handshake()
		got, code := f.request("resources/read", `{"uri":"ui://clock/face"}`)
		var res struct{ Contents []struct{ Text string } }
		if err := json.Unmarshal(got, &res); err != nil || code != 0 || len(res.Contents) != 1 ||
			res.Contents[0].Text != clockHTML {
			t.Errorf("read %s, %d", got, code)
		}
		if got, code := f.request("resources/read", `{"uri":"ui://nothing"}`); code != mcp.CodeInvalidParams {
			t.Errorf("unknown resource: %s, error %d", got, code)
		}
		for _, params := range []string{`{}`, `{"uri":""}`, `{"uri":["ui://clock/face"]}`, `{"uri":"ui://` + strings.Repeat("a", 3000) + `"}`} {
			if _, code := f.request("resources/read", params); code != mcp.CodeInvalidParams {
				t.Errorf("resources/read %.50s: %d", params, code)
			}
		}
	})
}

func TestLinksMessagesAndModelContext(t *testing.T) {
	var calls []string
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{
		OpenLink: func(_ context.Context, url string) error { calls = append(calls, "open "+url); return nil },
		Message:  func(_ context.Context, text string) error { calls = append(calls, "message "+text); return nil },
		UpdateModelContext: func(_ context.Context, c apps.ModelContext) error {
			calls = append(calls, "context "+string(c.Content)+string(c.StructuredContent))
			return nil
		},
		SizeChanged: func(w, h float64) { calls = append(calls, fmt.Sprint("size ", w, " ", h)) },
		Log: func(_ context.Context, l mcp.LoggingLevel, d json.RawMessage) {
			calls = append(calls, "log "+string(l)+string(d))
		},
	})
	f.handshake()
	for _, r := range [][2]string{
		{"ui/open-link", `{"url":"https://example.com/a?b#c"}`},
		{"ui/open-link", `{"url":"https://[2001:db8::1]:8443/caf\u00e9?q=\u202e#\u00e9"}`},
		{"ui/message", `{"role":"user","content":{"type":"text","text":"hello"}}`},
		{"ui/message", `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		{"ui/update-model-context", `{"content":[{"type":"text","text":"x"}],"structuredContent":{"y":1}}`},
	} {
		if got, code := f.request(r[0], r[1]); string(got) != "{}" {
			t.Errorf("%s %s: %s, %d", r[0], r[1], got, code)
		}
	}
	for _, r := range [][2]string{
		{"ui/open-link", `{"url":"javascript:alert(1)"}`}, {"ui/open-link", `{"url":"file:///etc/passwd"}`}, {"ui/open-link", `{"url":"//example.com"}`},
		{"ui/open-link", `{"url":"https://bank.example@evil.example/"}`}, {"ui/open-link", `{"url":"https:\\\\evil.example"}`},
		{"ui/open-link", `{"url":"https://ev\u202eil.example/"}`}, {"ui/open-link", `{"url":"https://b\u00e4nk.example/"}`},
		{"ui/open-link", `{"url":"https://ev%E2%80%AEil.example/"}`}, {"ui/open-link", `{"url":"https://[fe80::1%25eth0]/"}`},
		{"ui/open-link", `{"url":"https://:80/"}`}, {"ui/open-link", `{"url":"https://a.example:99999/"}`}, {"ui/open-link", `{"url":"https://a.example:0/"}`},
		{"ui/open-link", `{"url":"https://a\nb"}`}, {"ui/open-link", `{}`}, {"ui/open-link", `{"url":"https://a/` + strings.Repeat("a", 3000) + `"}`},
		{"ui/message", `{"role":"assistant","content":{"type":"text","text":"x"}}`}, {"ui/message", `{"role":"user","content":{"type":"image"}}`},
		{"ui/message", `{"role":"user","content":[]}`}, {"ui/message", `{"role":"user"}`}, {"ui/message", `{"role":"user","content":"x"}`},
		{"ui/message", `{"role":"user","content":{"type":"text","text":"` + strings.Repeat("x", 70_000) + `"}}`},
		{"ui/update-model-context", `{"content":{}}`}, {"ui/update-model-context", `{"structuredContent":[]}`},
	} {
		if got, code := f.request(r[0], r[1]); code != mcp.CodeInvalidParams {
			t.Errorf("%s %.60s: %s, %d", r[0], r[1], got, code)
		}
	}
	f.send(`{"jsonrpc":"2.0","method":"ui/notifications/size-changed","params":{"width":1e9,"height":-5}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"w"}}`)
	f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"fatal","data":2}}`)
	want := []string{"open https://example.com/a?b#c", "open https://[2001:db8::1]:8443/caf%C3%A9?q=%E2%80%AE#%C3%A9", "message hello", "message a\nb", `context [{"type":"text","text":"x"}]{"y":1}`, "size 32767 0", `log warning"w"`, "log info2"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}

func TestDisplayModesNeedBothSides(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{
		Context: &apps.Context{DisplayMode: apps.DisplayInline,
			AvailableDisplayModes: []apps.DisplayMode{apps.DisplayInline, apps.DisplayFullscreen, apps.DisplayPiP}},
		RequestDisplayMode: func(_ context.Context, m apps.DisplayMode) (apps.DisplayMode, error) { return m, nil },
	})
	f.request("ui/initialize", `{"appCapabilities":{"availableDisplayModes":["inline","fullscreen","hologram"]}}`)
	f.send(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	for _, step := range [][2]string{{"pip", "inline"}, {"hologram", "inline"}, {"fullscreen", "fullscreen"}, {"pip", "fullscreen"}, {"inline", "inline"}} {
		if got, _ := f.request("ui/request-display-mode", `{"mode":"`+step[0]+`"}`); string(got) != `{"mode":"`+step[1]+`"}` {
			t.Errorf("requested mode %s: got %s, want %s", step[0], got, step[1])
		}
	}
	if f.bridge.ContextChanged(t.Context(), &apps.Context{DisplayMode: apps.DisplayPiP}) == nil {
		t.Error("ContextChanged to an unsupported display mode succeeded")
	}
	if err := f.bridge.ContextChanged(t.Context(), &apps.Context{DisplayMode: apps.DisplayFullscreen}); err != nil {
		t.Error(err)
	}
}

// The page may call unknown tools. They do not make the host list the tools each time.
func TestUnknownToolNamesDoNotListToolsEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClock(t)
		lists := 0
		s.Use(func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "tools/list" {
					lists++
				}
				return next.ServeMCP(ctx, req)
			})
		})
		c := mcptest.Dial(t, s, modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.handshake()
		for i := range 100 {
			f.request("tools/call", fmt.Sprintf(`{"name":"x%d"}`, i))
		}
		if lists != 1 {
			t.Errorf("the tools were listed %d times, want once", lists)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
