package apps_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const conversation = `"messages":[{"role":"user","content":{"type":"text","text":"Hello?"}}]`

func TestPagesSample(t *testing.T) {
	var got *mcp.CreateMessageParams
	var fail error
	opts := &apps.BridgeOptions{
		Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			got = p
			return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", StopReason: "endTurn",
				Content: []mcp.ContentBlock{mcp.Text("Hi.")}}, fail
		},
	}
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), opts)
	f.handshake()
	a, _ := f.request("sampling/createMessage", `{`+conversation+`,"maxTokens":100,"_meta":{"progressToken":1}}`)
	wantJSON(t, "the answer", a,
		`{"role":"assistant","content":{"type":"text","text":"Hi."},"model":"m","stopReason":"endTurn"}`)
	if got == nil || got.MaxTokens != 100 || len(got.Messages) != 1 || got.Meta != nil {
		t.Errorf("Sample got %+v", got)
	}
	tools := `,"maxTokens":9,"tools":[{"name":"t","inputSchema":{"type":"object"}}]`
	long := strings.Repeat(`{"role":"user","content":{"type":"text","text":"x"}},`, 257)
	for _, params := range []string{
		`{}`, `{` + conversation + `}`, `{` + conversation + `,"maxTokens":-1}`, `{"messages":[],"maxTokens":9}`,
		`{` + conversation + `,"maxTokens":9,"includeContext":"allServers"}`, `{` + conversation + tools + `}`,
		`{"messages":[` + long[:len(long)-1] + `],"maxTokens":9}`, `{"messages":{},"maxTokens":9}`,
		`{"messages":[{"role":"assistant","content":` +
			`{"type":"tool_use","id":"1","name":"t","input":{}}}],"maxTokens":9}`,
		`{"messages":[{"role":"user","content":7}],"maxTokens":9}`,
		`{` + conversation + `,"maxTokens":9,"toolChoice":{}}`,
	} {
		if a, code := f.request("sampling/createMessage", params); code != mcp.CodeInvalidParams {
			t.Errorf("%.100s: %s, error %d, want invalid params", params, a, code)
		}
	}
	fail = errors.New("the user refused")
	if _, code := f.request("sampling/createMessage", `{`+conversation+`,"maxTokens":9}`); code != -1 {
		t.Errorf("a refused conversation: error %d", code)
	}
	fail, opts.SampleTools = nil, true
	f = open(t, c, logger(t), opts)
	f.handshake()
	if a, code := f.request("sampling/createMessage", `{`+conversation+tools+`}`); code != 0 || len(got.Tools) != 1 {
		t.Errorf("with tools: %s, error %d", a, code)
	}
}

func TestPagesSampleOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := make(chan struct{})
		c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{
			Sample: func(ctx context.Context, _ *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
				<-wait
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m",
					Content: []mcp.ContentBlock{mcp.Text("Hi.")}}, nil
			},
		})
		f.handshake()
		params := `{` + conversation + `,"maxTokens":9}`
		var first sync.WaitGroup
		first.Go(func() {
			if _, code := f.request("sampling/createMessage", params); code != 0 {
				t.Errorf("the first conversation: error %d", code)
			}
		})
		synctest.Wait()
		if _, code := f.request("sampling/createMessage", params); code != mcp.CodeBusy {
			t.Errorf("a second conversation: error %d, want busy", code)
		}
		close(wait)
		first.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPagesOfferDownloads(t *testing.T) {
	var got []apps.Download
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{
		DownloadFile: func(_ context.Context, files []apps.Download) error { got = files; return nil },
	})
	f.handshake()
	a, code := f.request("ui/download-file", `{"contents":[
		{"type":"resource","resource":{"uri":"file:///a/export.json","mimeType":"application/json","text":"{}"}},
		{"type":"resource","resource":{"uri":"file:///b.png","blob":"AAEC"}},
		{"type":"resource_link","uri":"https://api.example.com/q4%20final.pdf?x#y","name":"Q4",
			"mimeType":"application/pdf"},
		{"type":"resource_link","uri":"ui://clock/face","name":"face"}]}`)
	if string(a) != "{}" {
		t.Fatalf("%s, error %d", a, code)
	}
	wantJSON(t, "the files", got, `[
		{"Name":"export.json","MIMEType":"application/json","Data":"e30=","URI":""},
		{"Name":"b.png","MIMEType":"","Data":"AAEC","URI":""},
		{"Name":"q4 final.pdf","MIMEType":"application/pdf","Data":null,
			"URI":"https://api.example.com/q4%20final.pdf?x#y"},
		{"Name":"face","MIMEType":"","Data":null,"URI":"ui://clock/face"}]`)
	for uri, want := range map[string]string{
		"file:///../../etc/passwd": "passwd", "x:/..%2f..%2fetc%2fpasswd": "_.._etc_passwd", "x:/": "download",
		"x:/CON.txt": "download", "x:/com1": "download", "x:/.bashrc": "bashrc", "x:/a%5cb%00c": "a_b_c",
		"x:/invoice%E2%80%AEfdp.exe": "invoice_fdp.exe", "x:/%ff.txt": "_.txt", "x:/a. . ": "a", "x:/..": "download",
		"x:/" + strings.Repeat("é", 200) + ".tar": strings.Repeat("é", 58) + ".tar", "": "download",
	} {
		raw, _ := json.Marshal(uri)
		f.request("ui/download-file",
			`{"contents":[{"type":"resource","resource":{"uri":`+string(raw)+`,"text":"x"}}]}`)
		if len(got) != 1 || got[0].Name != want {
			t.Errorf("the name of %q is %q, want %q", uri, got[0].Name, want)
		}
	}
	link := `{"type":"resource_link","name":"x","uri":"https://example.com/"}`
	for _, contents := range []string{
		`[]`, `{}`, `null`, `[{"type":"text","text":"x"}]`, `[{"type":"resource"}]`, `[7]`,
		`[{"type":"resource_link","name":"x","uri":"https://bank.example@evil.example/"}]`,
		`[{"type":"resource_link","name":"x","uri":"HTTP:evil"}]`, `[{"type":"resource_link","name":"x","uri":""}]`,
		`[{"type":"resource_link","name":"x","uri":"a:\u202e"}]`, `[` + strings.Repeat(link+",", 16) + link + `]`,
		`[{"type":"resource_link","name":"x","uri":"a:` + strings.Repeat("x", 3000) + `"}]`,
	} {
		if a, code := f.request("ui/download-file", `{"contents":`+contents+`}`); code != mcp.CodeInvalidParams {
			t.Errorf("%.80s: %s, error %d, want invalid params", contents, a, code)
		}
	}
	if a, code := f.request("ui/download-file", `{}`); code != mcp.CodeInvalidParams {
		t.Errorf("without contents: %s, error %d", a, code)
	}
}
