package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A user who refuses, or a function that fails, ends the request: it is not sent again.
//
// Requirement: SAMP-21, ROOT-06
func TestRefusedInputIsNotRetried(t *testing.T) {
	refusal := errors.New("the user refused")
	opts := &mcp.ClientOptions{
		Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) { return nil, refusal },
		Roots:  func(context.Context) ([]mcp.Root, error) { return nil, refusal },
	}
	for method, params := range map[string]string{
		"sampling/createMessage": `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":1}`, "roots/list": `{}`,
	} {
		requests := 0
		c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) {
			requests++
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"` + method + `","params":` + params + `}}}`, nil
		})
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, refusal) || requests != 1 {
			t.Errorf("%s: got error %v after %d requests, want the refusal after 1", method, err, requests)
		}
	}
}

// A result that has expired is fetched when it is needed, not at the end of its TTL. An error of the
// fetch is returned: a stale result is never used instead.
//
// Requirement: CACHE-08, CACHE-15
func TestExpiredResultsAreFetchedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, fails := 0, false
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
			if requests++; fails {
				return "", mcp.Errorf(mcp.CodeInternalError, "not now")
			}
			return `{"contents":[{"uri":"a:1","text":"x"}],"ttlMs":1000,"cacheScope":"private"}`, nil
		})
		read := func() error { _, err := c.ReadResource(t.Context(), "a:1"); return err }
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(time.Hour); requests != 1 {
			t.Errorf("got %d requests within an hour without a reader, want 1", requests)
		}
		if err := read(); err != nil || requests != 2 {
			t.Errorf("after the TTL: got %v and %d requests, want 2", err, requests)
		}
		time.Sleep(time.Hour)
		if fails = true; read() == nil {
			t.Error("a failed fetch returned a stale result")
		}
	})
}

// Requirement: TOOL-21
func TestHintsHaveDefaults(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name string
		a    *mcp.ToolAnnotations
		want [4]bool // read only, destructive, idempotent, open world
	}{
		{"nil", nil, [4]bool{false, true, false, true}},
		{"empty", &mcp.ToolAnnotations{}, [4]bool{false, true, false, true}},
		{"opposite", &mcp.ToolAnnotations{ReadOnly: &yes, Destructive: &no, Idempotent: &yes, OpenWorld: &no},
			[4]bool{true, false, true, false}},
		{"as by default", &mcp.ToolAnnotations{ReadOnly: &no, Destructive: &yes, Idempotent: &no, OpenWorld: &yes},
			[4]bool{false, true, false, true}},
	} {
		var got [4]bool
		if got[0], got[1], got[2], got[3] = c.a.Hints(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Requirement: ICON-09
func TestIconsHaveSizesAndThemes(t *testing.T) {
	icons := []mcp.Icon{
		{Src: "https://e.example/i.png", MIMEType: "image/png", Sizes: []string{"48x48", "96x96"}, Theme: "dark"},
		{Src: "data:image/svg+xml,x", Sizes: []string{"any"}}, {Src: "https://e.example/j.png", Theme: "light"},
	}
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "t", Icons: icons}, func(context.Context, struct{}) (string, error) { return "", nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		var list struct {
			Tools []struct{ Icons json.RawMessage }
		}
		if err := json.Unmarshal(c.Call("tools/list", nil), &list); err != nil {
			t.Fatal(err)
		}
		if c.Revision < "2025-11-25" {
			if list.Tools[0].Icons != nil {
				t.Errorf("got icons %s in a revision without them", list.Tools[0].Icons)
			}
			return
		}
		var got []mcp.Icon
		if err := json.Unmarshal(list.Tools[0].Icons, &got); err != nil || !cmp.Equal(got, icons) {
			t.Errorf("got %s, %v, want %+v", list.Tools[0].Icons, err, icons)
		}
	})
}

// Requirement: CAN-08
func TestReasonOfACancellationIsLogged(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	for _, revision := range mcptest.Revisions() {
		synctest.Test(t, func(t *testing.T) {
			var log logBuffer
			client, server := mcp.Pipe()
			served := make(chan error)
			go func() { served <- mcp.Serve(t.Context(), s, server, &mcp.ServeOptions{Logger: log.logger()}) }()
			c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), &mcp.ClientOptions{Revision: revision})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("the user left")) })
			if _, err := c.CallTool(ctx, "wait", nil); err == nil {
				t.Errorf("%s: the cancelled call succeeded", revision)
			}
			c.Close()
			<-served
			if !log.has("reason=cancelled") {
				t.Errorf("%s: got log %s, want the reason", revision, log.String())
			}
		})
	}
}

// Before initialize a stream has no session: a request without the metadata of 2026-07-28 is refused,
// with a text that says both ways to begin. A ping is answered.
//
// Requirement: LIFE-01
func TestSessionsBeginWithInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveClient(t, methodTable{"tools/list": answerRevision})
		c.send(plainLine(`1`, "tools/list", `{}`), plainLine(`2`, "ping", `{}`), initializedLine,
			`[`+plainLine(`3`, "ping", `{}`)+`]`)
		got := strings.Join(c.recv(), "\n")
		for _, want := range []string{`"id":1,"error":{"code":-32602`, "or send initialize first", `"id":2,"result":{}`, `-32600`} {
			if !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		c.send(initializeLine(`4`, "2025-06-18"), plainLine(`5`, "tools/list", `{}`))
		if got := strings.Join(c.recv(), "\n"); !strings.Contains(got, `"id":5,"result":{`) {
			t.Errorf("after initialize: got %s, want a result", got)
		}
		c.cancel()
		<-c.served
	})
}
