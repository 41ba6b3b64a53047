package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The rule of reserved prefixes has changed: before 2026-07-28 a label of the protocol may stand
// anywhere but at the end.
func TestReservedMetaKeysAreRefusedAtRegistration(t *testing.T) {
	register := map[string]func(s *mcp.Server, m mcp.Meta){
		"tool": func(s *mcp.Server, m mcp.Meta) {
			mcp.AddTool(s, &mcp.Tool{Name: "a", Meta: m}, func(context.Context, struct{}) (string, error) { return "", nil })
		},
		"prompt": func(s *mcp.Server, m mcp.Meta) {
			mcp.AddPrompt(s, &mcp.Prompt{Name: "a", Meta: m}, func(context.Context, struct{}) (string, error) { return "", nil })
		},
		"resource": func(s *mcp.Server, m mcp.Meta) {
			mcp.AddResource(s, &mcp.Resource{Name: "a", URI: "a:1", Meta: m},
				func(context.Context, string) (string, error) { return "", nil })
		},
		"template": func(s *mcp.Server, m mcp.Meta) {
			mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{Name: "a", URITemplate: "a:{x}", Meta: m},
				func(context.Context, map[string]string) (string, error) { return "", nil })
		},
	}
	for key, refused := range map[string]bool{
		"io.modelcontextprotocol/x": true, "dev.mcp/x": true, "com.mcp.tools/x": true, "com.example.mcp.tools/x": true,
		"a b": true, "": true, "com.example/x": false, "com.example.mcp/x": false, "plain": false,
	} {
		for name, add := range register {
			t.Run(fmt.Sprintf("%s/%s", name, key), func(t *testing.T) {
				defer func() {
					if r := recover(); (r != nil) != refused || r != nil && !strings.Contains(fmt.Sprint(r), "Meta") {
						t.Errorf("panic %v, want one: %t", r, refused)
					}
				}()
				add(newServer(t, nil), mcp.Meta{key: 1})
			})
		}
	}
}

// Requirement: ICON-10
func TestDisplayNameOfTools(t *testing.T) {
	annotated := &mcp.ToolAnnotations{Title: "annotated"}
	for want, tool := range map[string]*mcp.Tool{
		"title":     {Name: "name", Title: "title", Annotations: annotated},
		"annotated": {Name: "name", Annotations: annotated},
		"name":      {Name: "name", Annotations: &mcp.ToolAnnotations{}},
		"bare":      {Name: "bare"},
	} {
		if got := tool.DisplayName(); got != want {
			t.Errorf("DisplayName() = %q, want %q", got, want)
		}
	}
}

func TestLoggingLevelsAreLevelsOfSlog(t *testing.T) {
	want := slog.LevelDebug - 1
	for _, level := range []mcp.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"} {
		if got := level.Level(); got <= want {
			t.Errorf("%s is %v, want more than %v", level, got, want)
		} else {
			want = got
		}
	}
	if got := mcp.LoggingLevel("warning").Level(); got != slog.LevelWarn {
		t.Errorf("warning is %v", got)
	}
	if got := mcp.LoggingLevel("loud").Level(); got != slog.LevelDebug {
		t.Errorf("an unknown level is %v, want %v", got, slog.LevelDebug)
	}
}

// Requirement: LOG-09
func TestLoggersHaveNames(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		log := mcp.Logger(ctx)
		log.Error("none")
		named := log.With("logger", "database", "n", 1)
		named.Error("with")
		named.With("logger", "cache").WithGroup("g").With("logger", "attribute").Error("group")
		log.With("logger", 5).Error("number")
		return "", nil
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{LogLevel: "debug"},
		func(t *testing.T, c *mcptest.Client) {
			callTool(t, c, "log", nil)
			var got []string
			for _, n := range c.Notifications(logged) {
				m := decode[mcp.LoggingMessage](t, n.Params)
				got = append(got, m.Logger+" "+string(m.Data))
			}
			const want = ` "none"
database {"msg":"with","n":1}
cache {"g":{"logger":"attribute"},"msg":"group","n":1}
 {"logger":5,"msg":"number"}`
			if got := strings.Join(got, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
}

const trace = `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`

// traceContexts returns values of members of `_meta` in JSON, and whether they are valid.
func traceContexts() map[string]map[string]bool {
	return map[string]map[string]bool{
		"traceparent": {
			`"` + trace + `"`: true, `"01` + trace[2:] + `-more"`: true, `"` + trace + `-more"`: false, `"ff` + trace[2:] + `"`: false,
			`"00-00000000000000000000000000000000-00f067aa0ba902b7-01"`: false, `"` + strings.ToUpper(trace) + `"`: false,
			`"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"`: false, `""`: false, `5`: false, `null`: false,
			`"` + trace[:54] + `"`: false, `{}`: false,
		},
		"tracestate": {
			`"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"`: true, `"a=1, b@c=2"`: true, `""`: true, `"a=1,a=2"`: false, `"A=1"`: false,
			`"a"`: false, `"a=\u0001"`: false, `"` + strings.Repeat("a,", 40) + `"`: false, `[]`: false,
			`"a=` + strings.Repeat("x", 600) + `"`: false, `"a=1\r\nX-Header: 1"`: false,
		},
		"baggage": {
			`"userId=alice,serverNode=DF%2028,isProduction=false;k=v"`: true, `"a = 1"`: true, `"a"`: false, `"a=\"1\""`: false,
			`"a b=1"`: false, `"a=1\n"`: false, `"a=é"`: false, `"a=` + strings.Repeat("x", 9000) + `"`: false, `true`: false,
		},
		"com.example/x": {`"\u0001"`: true, `5`: true},
	}
}

// Requirement: META-16
func TestTraceContextHasTheFormOfTheW3C(t *testing.T) {
	values := traceContexts()
	s := newServer(t, nil)
	addTool(s, "meta", func(ctx context.Context) (string, error) {
		for key := range values {
			if v, ok := mcp.RequestFrom(ctx).Meta(key); ok {
				return string(v), nil
			}
		}
		return "absent", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for key, of := range values {
			for value, valid := range of {
				got := decode[toolResult](t, c.Call("tools/call", object{"name": "meta",
					"_meta": object{key: json.RawMessage(value)}})).text()
				if (got != "absent") != valid {
					t.Errorf("%s %.100s: the handler sees %.100s, want a valid value: %t", key, value, got, valid)
				}
			}
		}
	})
}

// The middleware sees the `_meta` as it was sent; Request.Meta would drop invalid values.
//
// Requirement: META-16
func TestClientSendsOnlyValidTraceContext(t *testing.T) {
	values := traceContexts()
	var sent json.RawMessage
	s := newServer(t, nil)
	addTool(s, "x", func(context.Context) (string, error) { return "", nil })
	s.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if meta, ok := req.Param("_meta"); ok && req.Method == "tools/call" {
				sent = bytes.Clone(meta)
			}
			return next.ServeMCP(ctx, req)
		})
	})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			c := mcptest.Dial(t, s, on, nil)
			for key, of := range values {
				for value, valid := range of {
					meta := mcp.Meta{key: json.RawMessage(value), "com.example/other": 1}
					if _, err := c.CallTool(mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: meta}), "x", nil); err != nil {
						t.Fatal(err)
					}
					var got map[string]json.RawMessage
					_ = json.Unmarshal(sent, &got)
					_, present := got[key]
					if _, other := got["com.example/other"]; present != valid || !other || len(meta) != 2 {
						t.Errorf("%s %.100s: the client sent %.300s, want it present: %t", key, value, sent, valid)
					}
				}
			}
		})
	}
}
