package apps_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// directives are the directives of a policy in order. Their values are keywords, or match
// allowedOrigin.
var (
	directives = []string{"default-src", "script-src", "style-src", "img-src", "font-src", "media-src", "connect-src",
		"frame-src",
		"object-src", "base-uri", "form-action"}
	allowedOrigin = regexp.MustCompile(`^(https|wss|http|ws)://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:[1-9][0-9]{0,4})?$`)
	keywords      = map[string]string{
		"default-src": "'none'", "script-src": "'self' 'unsafe-inline'", "style-src": "'self' 'unsafe-inline'", "img-src": "'self' data:",
		"font-src": "'self'", "media-src": "'self' data:", "connect-src": "'none'", "frame-src": "'none'", "object-src": "'none'",
		"base-uri": "'self'", "form-action": "'none'",
	}
)

// checkPolicy fails if a policy has anything that the specification does not allow.
func checkPolicy(t *testing.T, policy string) {
	t.Helper()
	parts := strings.Split(policy, "; ")
	if len(parts) != len(directives) || strings.ContainsAny(policy, "\r\n\t,") {
		t.Fatalf("invalid policy %q", policy)
	}
	for i, part := range parts {
		values := strings.Split(part, " ")
		if values[0] != directives[i] {
			t.Fatalf("directive %d is %q", i, part)
		}
		for _, v := range values[1:] {
			if !strings.Contains(" "+keywords[values[0]]+" ", " "+v+" ") && !allowedOrigin.MatchString(v) {
				t.Fatalf("%s allows %q", values[0], v)
			}
		}
	}
}

func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{"https://example.com", "https://*.example.com:8443", "https://a.com; script-src *", "'unsafe-eval'", "https://a.com\nx", "https://[::1]"} {
		f.Add(seed, seed, seed, seed)
	}
	f.Fuzz(func(t *testing.T, connect, resource, frame, base string) {
		checkPolicy(t, apps.CSP{
			ConnectDomains: []string{connect, frame}, ResourceDomains: []string{resource, base},
			FrameDomains: []string{frame}, BaseURIDomains: []string{base},
		}.Policy())
	})
}

// FuzzMetadata decodes metadata of views and tools: the result must be safe to grant.
func FuzzMetadata(f *testing.F) {
	for _, seed := range []string{`{"ui":` + clockMeta + `}`, hostileTool, `{"ui":{"csp":{"frameDomains":["https://a.com;x"]}}}`,
		`{"ui":{"permissions":{"camera":{}},"visibility":["app"]}}`, `{"ui/resourceUri":"javascript:1"}`, `{"ui":{"domain":"\u0000","prefersBorder":null}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, meta []byte) {
		var m mcp.Meta
		if json.Unmarshal(meta, &m) != nil {
			return
		}
		u, err := apps.ToolUIOf(&mcp.Tool{Name: "t", Meta: m})
		if u.View != "" && !strings.HasPrefix(u.View, "ui://") || err != nil && (u.ForModel() || u.ForApp()) {
			t.Errorf("tool: %+v, %v", u, err)
		}
		p, err := apps.PageFrom("ui://v",
			&mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "ui://v", MIMEType: apps.MIMEType, Text: "x",
				Meta: m}}})
		if err != nil {
			return
		}
		checkPolicy(t, p.Policy())
		if regexp.MustCompile(`[^A-Za-z0-9.-]`).MatchString(p.Frame.Domain) {
			t.Errorf("domain %q", p.Frame.Domain)
		}
		if !regexp.MustCompile(`^((camera|microphone|geolocation|clipboard-write)(; |$))*$`).MatchString(p.Allow()) {
			t.Errorf("allow %q", p.Allow())
		}
		for _, o := range p.Frame.CSP.ConnectDomains {
			u, err := url.Parse(o)
			if err != nil || u.Hostname() == "127.0.0.1" || strings.HasSuffix("."+u.Hostname(), ".localhost") {
				t.Errorf("a local origin is allowed: %q, %v", o, err)
			}
		}
		h, err := p.Header(&apps.HeaderOptions{Embedder: "https://host.example"})
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range h {
			if len(values) != 1 || strings.ContainsAny(values[0], "\r\n\x00") {
				t.Errorf("header %s: %q", name, values)
			}
		}
	})
}

// FuzzReadyBridge sends a message of a page after the handshake. Files and conversations that reach
// the host are within the limits, and each request gets one response.
func FuzzReadyBridge(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ui/download-file","params":{"contents":[{"type":"resource","resource":` +
			`{"uri":"x:/..%2fa","text":"b"}},{"type":"resource_link","uri":"https://a.example/x","name":"x"}]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{` + conversation + `,"maxTokens":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/request-teardown"}`,
		`{"jsonrpc":"2.0","id":"host-1","result":{"tools":[` + moveTool + `]}}`,
		`{"jsonrpc":"2.0","id":"host-1","error":{}}`, `{"jsonrpc":"2.0","id":"host-1","result":` + nested(64) + `}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0,"reason":"late"}}`,
	} {
		f.Add([]byte(seed))
	}
	quiet := slog.New(slog.DiscardHandler)
	unsafe := regexp.MustCompile(`[/\\:*?"<>|\x00-\x1f]|^\.|^$`)
	f.Fuzz(func(t *testing.T, message []byte) {
		var bridge *apps.Bridge
		var answers sync.WaitGroup
		defer answers.Wait()
		opts := &apps.BridgeOptions{
			DownloadFile: func(_ context.Context, files []apps.Download) error {
				for _, d := range files {
					if unsafe.MatchString(d.Name) || len(d.Name) > 120 || len(files) > 16 {
						t.Errorf("download %+v", d)
					}
				}
				return nil
			},
			Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
				if len(p.Messages) == 0 || len(p.Messages) > 256 || p.MaxTokens <= 0 || len(p.Tools) > 0 {
					t.Errorf("params %+v", p)
				}
				return &mcp.CreateMessageResult{}, nil
			},
			Send: func(_ context.Context, m json.RawMessage) error {
				answers.Go(func() { bridge.Handle(t.Context(), message) })
				return nil
			},
		}
		bridge = apps.NewHost(nil, &apps.HostOptions{Logger: quiet}).Bridge(&apps.Page{URI: "ui://v", HTML: "x"}, opts)
		for _, m := range []string{
			`{"jsonrpc":"2.0","id":0,"method":"ui/initialize","params":{"appCapabilities":{"tools":{}}}}`,
			`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`,
		} {
			bridge.Handle(t.Context(), json.RawMessage(m))
		}
		if a := bridge.Handle(t.Context(), message); a != nil && !json.Valid(a) {
			t.Errorf("%q: response %s", message, a)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // for answers that are none
		defer cancel()
		tools, _ := bridge.AppTools(ctx)
		for _, tool := range tools {
			if regexp.MustCompile("[^A-Za-z0-9_.-]|^$").MatchString(tool.Name) || len(tools) > 50 {
				t.Errorf("tool %q of %d", tool.Name, len(tools))
			}
		}
	})
}

// FuzzBridge: before the handshake every response is valid JSON-RPC, and no request reaches the
// server.
func FuzzBridge(f *testing.F) {
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ui/initialize","params":{"appCapabilities":{"availableDisplayModes":["pip"]}}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/size-changed","params":{"width":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":null}`, `[]`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + nested(63) + `}`, nested(65), strings.Repeat("[", 70)} {
		f.Add([]byte(seed))
	}
	quiet := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, message []byte) {
		h := apps.NewHost(nil, &apps.HostOptions{Logger: quiet}) // a client would be a nil pointer
		b := h.Bridge(&apps.Page{URI: "ui://v", HTML: "x"}, &apps.BridgeOptions{
			AllowTool: allow, Send: func(context.Context, json.RawMessage) error { return nil },
		})
		a := b.Handle(t.Context(), message)
		if a == nil {
			return
		}
		var answer struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  json.RawMessage `json:"result"`
			Error   *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(a, &answer); err != nil || answer.JSONRPC != "2.0" || answer.ID == nil ||
			(answer.Result == nil) == (answer.Error == nil) {
			t.Errorf("%q: response %s", message, a)
		}
		if n := levels(message); answer.Error == nil && n > 64 {
			t.Errorf("%q: %d levels were accepted: %s", message, n, a)
		}
	})
}

// levels returns how deep arrays and objects are nested in valid JSON.
func levels(text []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
		most = max(most, depth)
	}
	return most
}
