package legacy_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Requirement: LOG-02
func TestLevelIsSetWhenItChanges(t *testing.T) {
	list := func(c *legacy.Client, level string) {
		t.Helper()
		meta := ""
		if level != "" {
			meta = `"io.modelcontextprotocol/logLevel":"` + level + `"`
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", meta), nil); err != nil {
			t.Errorf("level %q: %v", level, err)
		}
	}
	const tools = `"method":"tools/list"`
	set := func(level string) string { return `"method":"logging/setLevel","params":{"level":"` + level + `"}` }
	for name, serve := range map[string]func(context.Context, *jsonrpc.Message) *jsonrpc.Message{
		"level accepted": nil,
		"level refused": func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message { // the request is sent nevertheless
			if req.Method == wire.MethodLoggingSetLevel {
				return failWith(-32601, "no", "")(ctx, req)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{serve: serve}
			c := open(t, clientConfig("2025-06-18"), s)
			for _, level := range []string{"", "info", "info", "", "debug", "debug", "info"} {
				list(c, level)
			}
			s.wants(t, tools, set("info"), tools, tools, tools, set("debug"), tools, tools, set("info"), tools)
		})
	}

	s := &fakeServer{}
	c := open(t, clientConfig("2025-06-18"), s)
	list(c, "info")
	if _, err := c.RoundTrip(t.Context(), "logging/setLevel", withEnvelope(`"level":"debug"`, ""), nil); err != nil {
		t.Error(err)
	}
	list(c, "info") // logging/setLevel changed the level
	s.wants(t, set("info"), tools, set("debug"), set("info"), tools)

	s = &fakeServer{capabilities: `{"tools":{}}`}
	list(open(t, clientConfig("2025-06-18"), s), "info")
	s.wants(t, tools)
}

func TestLevelIsSetOnceForManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel {
				<-release
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		stopped, stop := context.WithCancelCause(t.Context())
		wg.Go(func() { // one of them is cancelled, which does not affect the others
			if _, err := c.RoundTrip(stopped, "tools/list", withEnvelope("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != errCancelled {
				t.Errorf("the cancelled request: error %v, want its cause", err)
			}
		})
		synctest.Wait()
		stop(errCancelled)
		synctest.Wait()
		close(release)
		wg.Wait()
		count := 0
		for _, line := range s.take() {
			if strings.Contains(line, "setLevel") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("the level was set %d times, want once", count)
		}
		c.Close()
	})
}

// The level is the lowest of the requests in progress, which may be those of several callers.
func TestLevelIsNotRaisedDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{serve: func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == "prompts/list" {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		send := func(method, level string) {
			meta := `"io.modelcontextprotocol/logLevel":"` + level + `"`
			if _, err := c.RoundTrip(t.Context(), method, withEnvelope("", meta), nil); err != nil {
				t.Error(err)
			}
		}
		var slow sync.WaitGroup
		slow.Go(func() { send("prompts/list", "info") })
		synctest.Wait()
		send("tools/list", "error")
		send("tools/list", "debug")
		send("tools/list", "error")
		slow.Wait()
		send("tools/list", "error")
		const tools = `"method":"tools/list"`
		set := func(level string) string { return `"method":"logging/setLevel","params":{"level":"` + level + `"}` }
		s.wants(t, set("info"), `"method":"prompts/list"`, tools, set("debug"), tools, set("info"), tools, set("error"), tools)
		c.Close()
	})
}

func TestLevelIsSetAgainAfterACancelledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel && ctx.Value(errCancelled) != nil {
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		params := withEnvelope("", `"io.modelcontextprotocol/logLevel":"info"`)
		ctx, stop := context.WithCancelCause(context.WithValue(t.Context(), errCancelled, "the first"))
		time.AfterFunc(time.Second, func() { stop(errCancelled) })
		if _, err := c.RoundTrip(ctx, "tools/list", params, nil); err != errCancelled {
			t.Error(err)
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", params, nil); err != nil {
			t.Error(err)
		}
		const set = `"method":"logging/setLevel","params":{"level":"info"}`
		s.wants(t, set, set, `"method":"tools/list"`)
		c.Close()
	})
}

func TestSettingTheLevelIsLimitedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel {
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		for _, within := range []time.Duration{10 * time.Second, 0} {
			start := time.Now()
			if _, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != within {
				t.Errorf("RoundTrip took %v, want %v", took, within)
			}
		}
		c.Close()
	})
}
